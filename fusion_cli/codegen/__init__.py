"""Parts of generated sources that kernels of several families print: expressions, loops, operands."""
