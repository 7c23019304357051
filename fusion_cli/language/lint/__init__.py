"""What can be wrong with a rule file, each fault with its place, a stable code and, where there is one, the name meant.

Faults that keep a rule from being what its author means are errors, and no rule of the file is used. Faults of which
that cannot be known (an overload that is written twice) are warnings, which only `rules lint` shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from fusion_cli.language.lint.body import check_body
from fusion_cli.language.lint.header import check_header, check_targets
from fusion_cli.language.lint.operators import check_operators
from fusion_cli.language.lint.references import check_duplicates, check_kinds, check_references, check_shadows
from fusion_cli.language.lint.source import Finding, RuleFile, read_rule_file

__all__ = ["Finding", "RuleFile", "check_shadows", "check_targets", "lint_files", "lint_together", "read_rule_file"]


def lint_files(files: Sequence[RuleFile]) -> list[Finding]:
    """The faults of each file by itself, in order of place."""
    return [f for file in files for f in sorted(dict.fromkeys(_lint(file)), key=attrgetter("line", "column"))]


def lint_together(files: Sequence[RuleFile]) -> list[Finding]:
    """The faults that files have beside each other: `files` are all rules there are."""
    return [*check_kinds(files), *check_references(files), *check_duplicates(files)]


def _lint(file: RuleFile) -> list[Finding]:
    found = [file.finding(*fault) for fault in file.faults]
    for function in file.functions:
        for check in (check_header, check_body, check_operators):
            found += check(file, function)
    return found
