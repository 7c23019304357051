"""Tools for those who write rules: `rules lint`, `rules new` and `rules test`."""
