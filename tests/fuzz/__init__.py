"""Fuzzing: random graphs and damaged models (`python -m tests.fuzz`)."""
