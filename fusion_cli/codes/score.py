"""Why a candidate is not worth taking: reason codes FUS3xx, their titles and help.

The documentation is generated from this.
"""

from __future__ import annotations

DOES_NOT_PAY = "FUS301"
LOSES_IN_RANGE = "FUS302"
ON_CHIP = "FUS303"
SIZES = "FUS304"

CODES: dict[str, tuple[str, str]] = {
    DOES_NOT_PAY: (
        "The fusion does not pay",
        "The predicted time of the fused operator is not below that of the nodes as ONNX Runtime runs them after "
        "its own fusions. On CPU this is usual for matrix products with few rows: ONNX Runtime packs constant "
        "weights ahead of time, which an operator that calls its GEMM cannot. --force takes the candidate all the "
        "same.",
    ),
    LOSES_IN_RANGE: (
        "The fusion pays only for some sizes",
        "Over the given range of dynamic dimensions (--dim) the operator wins for some sizes and loses for others. "
        "Narrow the range, or use --force.",
    ),
    ON_CHIP: (
        "The kernel would use too much on-chip memory",
        "A kernel may use up to 80 % of the shared memory (GPU) or of the cache share (CPU) that a block has; more "
        "leaves no room to hide latency, or does not launch at all.",
    ),
    SIZES: (
        "The sizes of the region are not known well enough",
        "The cost of the region depends on a dimension whose value cannot be derived from the graph inputs. Give "
        "it with --dim NAME=VALUE or --shape.",
    ),
}

HINTS: dict[str, str] = {
    DOES_NOT_PAY: "--force takes it all the same; larger sizes (--dim, --shape) or another --target may pay",
    LOSES_IN_RANGE: "narrow the range that --dim gives, or use --force",
    SIZES: "give the sizes with --dim NAME=N or --shape INPUT=1,2,3",
}
"""What to do about them, in a line."""
