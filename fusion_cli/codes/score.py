"""Why a candidate is not worth taking: reason codes FUS3xx."""

from __future__ import annotations

DOES_NOT_PAY = "FUS301"
LOSES_IN_RANGE = "FUS302"
ON_CHIP = "FUS303"
SIZES = "FUS304"
ON_HOST = "FUS305"

ONLY_FORCE = "--force takes it all the same; another --target may pay"
"""Where it is known that sizes alone do not help."""

SIZES_NAMED = "--force takes it all the same; the sizes that are named pay (--dim, --shape), and another --target may"
"""Where it is known which sizes help."""

HINTS: dict[str, str] = {
    DOES_NOT_PAY: "--force takes it all the same; larger sizes (--dim, --shape) or another --target may pay",
    LOSES_IN_RANGE: "narrow the range that --dim gives, or use --force",
    ON_HOST: "another --target may have it; little is lost, since the CPU computes few numbers here",
    SIZES: "give the sizes with --dim NAME=N or --shape INPUT=1,2,3",
}
"""What to do about them, in a line."""
