"""docs/codes.md, from the tables of reason codes that the stages keep: `python -m fusion_cli.report.codes`."""

from __future__ import annotations

from importlib import import_module

_STAGES = {
    "match.lint": "a rule file is not what its author means",
    "simplify": "the node is gone before rules are matched",
    "match": "a rule did not apply",
    "plan": "no kernel can be made of the region",
    "score": "it would not pay",
    "select": "it overlaps a better one",
    "emit": "a target has no code for it",
    "verify": "it was built and taken back",
}
"""Stages that turn candidates down; each that does has a module `codes`."""

_HEAD = """# Reason codes

Why a rule did not apply at a place, or a candidate was not taken: `fusion-cli explain` and `rejected` in
[report.json](report.md) give one of these codes with what was expected and found. This page is generated from the
tables in the source by `python -m fusion_cli.report.codes`.
"""


def codes_by_stage() -> dict[str, dict[str, tuple[str, str]]]:
    """By stage: code -> (title, explanation)."""
    found = {}
    for stage in _STAGES:
        name = f"fusion_cli.{stage}.codes"
        try:
            module = import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            continue
        found[stage] = dict(module.CODES)
    return found


def markdown() -> str:
    """The text of docs/codes.md."""
    parts = [_HEAD]
    for stage, codes in codes_by_stage().items():
        parts.append(f"## {stage}: {_STAGES[stage]}\n")
        parts.extend(f"**{code}: {title}.** {text}\n" for code, (title, text) in sorted(codes.items()))
    return "\n".join(parts)


if __name__ == "__main__":
    print(markdown(), end="")
