"""The list of mutants is of this program: every change can still be made, and every test that is named is there."""

from __future__ import annotations

import pytest

from tests.mutants.catalogue import MUTANTS, ROOT, Mutant

STAGES = {
    "load", "simplify", "graph", "language", "match", "plan", "score", "select", "outline", "codegen", "cpu", "cuda",
    "save", "verify", "report", "runtime", "cli", "build",
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_mutant_applies(mutant: Mutant) -> None:
    changed = mutant.applied((ROOT / mutant.file).read_text())
    if mutant.file.endswith(".py"):
        compile(changed, mutant.file, "exec")
    assert mutant.files
    assert all((ROOT / file).exists() for file in mutant.files)


def test_every_stage_has_some() -> None:
    assert {m.stage for m in MUTANTS} >= STAGES
    assert len([m for m in MUTANTS if not m.gpu]) >= 80
    assert len(set(MUTANTS)) == len(MUTANTS)
