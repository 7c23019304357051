"""Why something was not fused, in words: near misses, their causes and what would help."""
