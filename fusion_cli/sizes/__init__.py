"""Symbolic sizes: what is known of dimensions before run time, and when two of them are equal."""
