"""The rule language: files, patterns, conditions, and what can be wrong with them."""
