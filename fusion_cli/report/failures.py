"""What is told of an error, and the exit code of its kind."""

from __future__ import annotations

from fusion_cli.errors import FusionError
from fusion_cli.report.readable import printable, printable_lines

INTERNAL_ERROR = 70
"""Exit code of a fault of the program itself (EX_SOFTWARE of sysexits.h)."""


def failure(error: Exception, has_traceback: bool = False) -> tuple[str, int]:
    """What is told of an error, fit to be printed, and its exit code. One that is none of ours is a fault of the
    program, of which `has_traceback` says whether more is shown."""
    if isinstance(error, FusionError):
        return (printable_lines if error.has_lines else printable)(str(error)), error.exit_code
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return printable(f"{where}{error.strerror or error}"), FusionError.exit_code
    if isinstance(error, MemoryError):
        return "there is not enough memory for this model", FusionError.exit_code
    text = " ".join(f"{type(error).__name__}: {error}".split())
    hint = "" if has_traceback else " (a fault of fusion-cli; --debug shows where)"
    return printable(f"internal: {text}{hint}"), INTERNAL_ERROR
