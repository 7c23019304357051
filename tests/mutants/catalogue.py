"""A mutant: one small change of the program that some test must notice. They are listed in catalogue.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mutant:
    """In `file` the one place that reads `old` reads `new`; `tests` are pytest's arguments for the tests that must
    fail then, which a few seconds suffice for. `gpu`: only on a GPU can they."""

    stage: str
    file: str
    old: str
    new: str
    tests: str
    gpu: bool

    @property
    def files(self) -> list[str]:
        """The files and folders that the tests are in."""
        return self.tests.partition(" -k ")[0].split()

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) or "(nothing)" for text in (self.old, self.new))
        return f"{self.stage}: {self.file}: {old} -> {new}"

    def applied(self, text: str) -> str:
        """The file's text with the change. Raises ValueError where the place is not found, or not the only one."""
        found = text.count(self.old)
        if found != 1 or self.old == self.new:
            raise ValueError(f"{self} applies to {found} places, not to one: mend tests/mutants/catalogue.toml")
        return text.replace(self.old, self.new)


def _mutants() -> tuple[Mutant, ...]:
    listed = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    files = listed["files"]
    return tuple(
        Mutant(stage, files[file], old, new, own[0] if own else found["tests"], found.get("gpu", False))
        for stage, found in listed["stages"].items()
        for file, old, new, *own in found["mutants"]
    )


MUTANTS = _mutants()
