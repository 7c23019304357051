"""Device profiles: the numbers that predictions are made with."""
