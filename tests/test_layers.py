"""The layers of ARCHITECTURE.md hold: what a part of the program may know, and where a line of it can be."""

from __future__ import annotations

import ast
import re
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "fusion_cli"
LONGEST = 300
"""Lines of a module."""


def modules() -> dict[str, Path]:
    """Every module by its dotted name; a package is its `__init__`."""
    paths = ((p, p.relative_to(ROOT).with_suffix("").parts) for p in (ROOT / PACKAGE).rglob("*.py"))
    return {".".join(parts).removesuffix(".__init__"): path for path, parts in paths}


def imported(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of ours that one imports, in functions and for types too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: import by the full name"
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {name if name in known else str(node.module) for name in names}
    return found & set(known)


def part_of(module: str) -> str:
    """The folder or module right below the package."""
    return [*module.split("."), "__init__"][1]


def heights() -> dict[str, int]:
    """How high each part stands, by the picture in ARCHITECTURE.md: its lowest line is the ground, and in a line the
    parts after `<` stand on those before."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    picture = re.search(r"```text\n(.*?)```", text, re.DOTALL)
    assert picture is not None
    rows = [re.split(r"\s{2,}", line)[0] for line in reversed(picture[1].splitlines())]
    layers = [layer.split(", ") for row in rows for layer in row.split(" < ")]
    found = [(name, height) for height, layer in enumerate(layers) for name in layer]
    assert len(dict(found)) == len(found), "a part is named twice"
    return dict(found)


MODULES = modules()
IMPORTS = {module: imported(path, MODULES) for module, path in MODULES.items()}


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    list(TopologicalSorter(IMPORTS).static_order())


def test_nothing_imports_what_stands_beside_or_above_it() -> None:
    height = heights()
    pairs = [(a, b, part_of(a), part_of(b)) for a, targets in IMPORTS.items() for b in targets]
    assert [f"{a} imports {b}" for a, b, own, other in pairs if own != other and height[own] <= height[other]] == []


def test_the_picture_names_every_part() -> None:
    assert set(map(part_of, MODULES)) == set(heights())


def test_no_module_is_too_long() -> None:
    lengths = {module: len(path.read_text("utf-8").splitlines()) for module, path in MODULES.items()}
    assert {module: lines for module, lines in lengths.items() if lines > LONGEST} == {}


def test_no_two_modules_are_of_one_name() -> None:
    names = Counter(path.stem for path in MODULES.values() if path.stem != "__init__")
    assert [name for name, count in names.items() if count > 1] == []


def test_every_folder_says_what_it_holds() -> None:
    folders = {path.parent for path in MODULES.values()}
    texts = {f: ast.get_docstring(ast.parse((f / "__init__.py").read_text("utf-8"))) for f in folders}
    assert [str(folder) for folder, text in texts.items() if not text] == []
