"""Why a node of the file is not there to be fused: reason codes FUS12x."""

FOLDED = "FUS120"
MERGED = "FUS121"
ABSORBED = "FUS122"
UNUSED = "FUS123"
