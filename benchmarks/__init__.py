"""Programs that measure the compiler: over a folder of real models, and on a GPU."""
