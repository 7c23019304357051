"""The plan of a region: tensors, the shape program, and kernel stages, as frozen data."""
