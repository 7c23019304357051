"""The operators of ONNX, by what they are and mean."""
