"""Errors a user can act on, and the exit code each one ends the command with."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FusionError(Exception):
    """A failure to be shown as one line: what went wrong, where, and how to mend it.

    `exit_code` is what the command line exits with: 1 the input is at fault, 3 numbers differ,
    4 a gate failed, 5 the kernel build failed, 6 nothing was tuned (2, wrong usage, is click's own).
    """

    exit_code = 1
    has_lines = False
    """Whether the message shows lines: of a rule, a template, or what a compiler says."""

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{where}{self.message}{hint}"


class ModelError(FusionError):
    """The model file is missing, damaged, unsupported, or unsafe to read."""


class RuleError(FusionError):
    """A rule file does not parse, or names something that does not exist."""

    has_lines = True


class TemplateError(FusionError):
    """A kernel template does not render."""

    has_lines = True


class NumbersDiffer(FusionError):
    """The fused model's outputs differ from the original's beyond tolerance."""

    exit_code = 3


class GateError(FusionError):
    """A condition the user asked to hold does not."""

    exit_code = 4


class BuildError(FusionError):
    """A compiler failed on generated source."""

    exit_code = 5
    has_lines = True


class NotTuned(FusionError):
    """A tuning file has no decisions for a model, and they were required."""

    exit_code = 6


class Unsupported(Exception):
    """A region cannot be turned into a kernel; a reason to turn the candidate down, never a crash.

    `code` is a stable reason code (see docs/codes.md), `expected`/`found` say what was missing, and `hint` what would
    help, where more is known about that than the code says.
    """

    def __init__(self, code: str, expected: str, found: str, hint: str = "") -> None:
        super().__init__(f"{code}: expected {expected}, found {found}")
        self.code = code
        self.expected = expected
        self.found = found
        self.hint = hint


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.4) -> str:
    """A hint naming the most similar of the known names; empty if none is as similar as `cutoff` (0 to 1)."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=cutoff)
    return f"did you mean '{close[0]}'?" if close else ""


def first_line(error: BaseException) -> str:
    """What a library's error says, without details; the name of its class if it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]
