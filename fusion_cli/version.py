"""The version of this package, by itself so that any part can say it."""

__version__ = "0.1.0"
