"""What can be said of a graph whatever the rules: order, readers, constants, attributes in one form, convexity."""
