"""The GPU kernels at the sizes of their tests under NVIDIA's compute-sanitizer."""
