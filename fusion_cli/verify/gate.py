"""What a verification has to say before a model is written."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from fusion_cli.errors import GateError, NumbersDiffer
from fusion_cli.measured import Verification
from fusion_cli.types import FusedOp


def require(path: Path, verification: Verification, ops: Sequence[FusedOp], *, asked: bool) -> None:
    """Raises NumbersDiffer where they do, and GateError where they are not known and `asked` for. What is not known and
    not asked for is a warning."""
    if not verification.ok:
        worst = max(verification.outputs, key=lambda o: o.error)
        raise NumbersDiffer(
            verification.skipped
            or f"output '{worst.output}' differs by {worst.error:.2g} of its largest value, "
            f"{worst.tolerance:g} is allowed",
            where=str(path),
            hint="report this; --no-verify writes the model all the same",
        )
    built, tried = {t for o in ops for t in o.targets} - {"portable"}, {c.target for c in verification.ops}
    why = verification.skipped or "".join(f"no {name} here to run its kernels" for name in sorted(built - tried)[:1])
    if why and asked:
        hint = "leave --require-verified out to write it all the same"
        raise GateError(f"the model cannot be verified: {why}", where=str(path), hint=hint)
    if verification.skipped:
        warnings.warn(f"{path}: written, but not verified: {why}", stacklevel=2)
