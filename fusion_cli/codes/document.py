"""docs/codes.md, from the tables of reason codes that the stages keep: `python -m fusion_cli.codes.document`."""

from __future__ import annotations

from importlib import import_module

_STAGES = {
    "lint": "a rule file is not what its author means",
    "simplify": "the node is gone before rules are matched",
    "match": "a rule did not apply",
    "plan": "no kernel can be made of the region",
    "score": "it would not pay",
    "select": "it overlaps a better one",
    "emit": "a target has no code for it",
    "verify": "it was built and taken back",
}
"""Stages that turn candidates down; each has a module of its name here."""

_HEAD = """# Reason codes

Why a rule did not apply at a place, or a candidate was not taken: `fusion-cli explain` and `rejected` in
[report.json](report.md) give one of these codes with what was expected and found. This page is generated from the
tables in the source by `python -m fusion_cli.codes.document`.
"""


def codes_by_stage() -> dict[str, dict[str, tuple[str, str]]]:
    """By stage: code -> (title, explanation)."""
    return {stage: dict(import_module(f"fusion_cli.codes.{stage}").CODES) for stage in _STAGES}


def markdown() -> str:
    """The text of docs/codes.md."""
    parts = [_HEAD]
    for stage, codes in codes_by_stage().items():
        parts.append(f"## {stage}: {_STAGES[stage]}\n")
        parts.extend(f"**{code}: {title}.** {text}\n" for code, (title, text) in sorted(codes.items()))
    return "\n".join(parts)


if __name__ == "__main__":
    print(markdown(), end="")
