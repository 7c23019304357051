"""Reason codes by stage, each with its title, explanation and hint; docs/codes.md is made from them."""
