"""What a model is made of, and what became of it: `inspect` and `diff`."""
