"""Example models, and the programs that show what the compiler does with them."""
