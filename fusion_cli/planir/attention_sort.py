"""What sort of attention a stage is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Masking = Literal["none", "boolean", "additive", "general"]
Probabilities = Literal["identity", "zero_empty", "zero_nan", "general"]


@dataclass(frozen=True)
class AttentionKind:
    """What sort of attention a stage is, so that nobody has to read its programs again.

    `masking`: what the score program does to the scaled products that `causal` leaves: nothing, put constants in the
    place of some, add something to them (constants in places as well), or anything else.
    `causal`: the score of every key later than the query is `later`, or the scaled product and `later` where it is
    `added`, whatever the operands hold; -inf, or (without other masks) a number that leaves a key no weight as a rule.
    `probabilities`: they are used as they are (rounded at most), with zeros for a row whose scores are all -inf, with
    zeros for NaN (a whole row is NaN or none of it), or after any other program.
    `grouped`: several query heads share the keys and values of one, along an axis of 1.
    """

    masking: Masking = "none"
    causal: bool = False
    probabilities: Probabilities = "identity"
    grouped: bool = False
    later: float = float("-inf")
    added: bool = False


PLAIN = AttentionKind()
"""Neither masked nor grouped, of any length."""
