"""Reason codes by stage, with what to do about them; docs/codes.md explains each."""
