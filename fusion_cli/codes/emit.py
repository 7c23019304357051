"""Why a target has no code for an operator: reason codes FUS5xx."""

from __future__ import annotations

DTYPE = "FUS501"
OPERATOR = "FUS502"
LIMIT = "FUS503"
NO_PLAN = "FUS504"
NO_TEMPLATE = "FUS505"
OUTPUT_SIZE = "FUS506"

HINTS: dict[str, str] = {
    DTYPE: "another --target may have the kernel",
    OPERATOR: "another --target may have the kernel",
    LIMIT: "a smaller --opt-level makes smaller operators; another --target may have the kernel",
    NO_TEMPLATE: "write the template, or leave the target out",
    OUTPUT_SIZE: "name equal dimensions alike when exporting, or compute the shape in the template",
}
"""What to do about them, in a line."""
