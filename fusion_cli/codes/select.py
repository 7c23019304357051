"""Why a candidate that pays was not taken: reason codes FUS350 and FUS351."""

HINTS: dict[str, str] = {
    "FUS350": "--rules with this rule's name leaves the others out",
    "FUS351": "--rules without the other rule gives this one the nodes",
}
"""What to do about them, in a line."""
