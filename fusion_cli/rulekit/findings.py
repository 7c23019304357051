"""Everything that can be said about rule files, all findings at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from fusion_cli.errors import RuleError
from fusion_cli.language.lint import (
    Finding,
    RuleFile,
    check_shadows,
    check_targets,
    lint_files,
    lint_together,
    read_rule_file,
)
from fusion_cli.language.lint.operators import check_call
from fusion_cli.language.lint.source import rule_folder
from fusion_cli.language.lint.tokens import nearest
from fusion_cli.language.rule_files import rule_files
from fusion_cli.resources import resource_dir
from fusion_cli.rulekit.schemas import contributed
from fusion_cli.targets import DEFINITE


def read_all(paths: Sequence[Path]) -> tuple[list[RuleFile], list[RuleFile]]:
    """The bundled files and those of `paths` (folders or files; a file in a folder `idioms` holds idioms), and of
    these the ones asked for: those of `paths`, or all if there are none. With a file come the idioms beside it. Raises
    RuleError for what is not there."""
    bundled = rule_files([resource_dir("rules")])
    asked = [f for path in paths for f in _files(path)]
    known = {f.path.resolve() for f in asked}
    roots = dict.fromkeys(rule_folder(f.path) for f in asked)
    beside = [f for f in rule_files(roots) if f.kind == "idiom"]
    others = {f.path.resolve(): f for f in (*bundled, *beside)}
    return [f for path, f in others.items() if path not in known] + asked, asked or bundled


def lint(paths: Sequence[Path]) -> tuple[list[RuleFile], list[Finding]]:
    """The files that `paths` ask for (all bundled ones if empty), and what is wrong with them, in order of place."""
    everything, asked = read_all(paths)
    found = [*lint_files(asked), *check_targets(asked, DEFINITE)]
    found += [*lint_together(everything), *check_shadows(everything, resource_dir("rules")), *_contributed(asked)]
    order = {f.path: i for i, f in enumerate(asked)}
    mine = dict.fromkeys(f for f in found if f.path in order)
    return asked, sorted(mine, key=lambda f: (order[f.path], f.line, f.column))


def _files(path: Path) -> list[RuleFile]:
    if path.is_dir():
        return rule_files([path])
    if not path.exists():
        raise RuleError("no such rule file or folder", where=str(path))
    return [read_rule_file(path, "idiom" if path.resolve().parent.name == "idioms" else "fusion")]


def _contributed(files: Sequence[RuleFile]) -> Iterator[Finding]:
    """Operators of ONNX Runtime's own domains, where it is installed: only it knows them."""
    calls = ((f, call) for f in files for function in f.functions for call in function.calls)
    for file, call in calls:
        known = contributed().get(call.node.domain) if call.node.domain else None
        if known is not None and call.node.op_type in known:
            yield from check_call(file, call, known[call.node.op_type])
        elif known is not None:
            message = f"ONNX Runtime has no '{call.op.text}'{nearest(call.node.op_type, known)}"
            yield file.finding("FUS020", call.op, message)
