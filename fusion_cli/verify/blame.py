"""Whose fault it is that a stage broke off: ours, unless the model is one that others refuse too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fusion_cli.errors import FusionError, ModelError
from fusion_cli.limits import Budget
from fusion_cli.load.checker import fault
from fusion_cli.sessions import CannotRun, Refused
from fusion_cli.sessions.process import Process


@contextmanager
def blaming(model: Path) -> Iterator[None]:
    """Turn an exception that nobody expected into a ModelError where the checker or ONNX Runtime refuses the model: it
    may then hold anything, and no stage can be ready for all of that."""
    try:
        yield
    except (FusionError, OSError, MemoryError):
        raise
    except Exception as error:
        said = _refusal(model)
        if not said:
            raise
        raise ModelError(f"the model is malformed: {said}", where=str(model), hint="export it again") from error


def _refusal(model: Path) -> str:
    try:
        said = fault(model)
    except Exception as error:  # of text that is none, the checker cannot even say what is wrong
        said = str(error)
    if said:
        return said
    with Process(Budget()) as process:
        try:
            process.open(model, use="reference")
        except Refused as error:
            return str(error)
        except CannotRun:
            pass
    return ""
