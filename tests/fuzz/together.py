"""Graphs by the dozen, whose kernels are compiled as one source and linked into one library: a graph by itself waits
most of the time for compilers that read the same headers.

    python -m tests.fuzz.together TARGET SEED...

is how `groups` runs one dozen: it prints a line of JSON for each, `[seed, ""]` where work on it begins and
`[seed, outcome]` where it is done.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from unittest.mock import patch

from fusion_cli.build.toolchain import toolchain
from fusion_cli.emit import emit_registration
from fusion_cli.kernels.user_template import SUFFIX
from fusion_cli.language.rule_files import load_rules
from fusion_cli.limits import Budget, run
from fusion_cli.resources import resource_dir
from fusion_cli.sessions.process import Process
from fusion_cli.targets import resolve_targets
from fusion_cli.types import Library, Source, Target
from tests.fuzz.trial import GOOD, Trials, budget
from tests.fuzz.variety import draw_graph

_COMPILING = 600.0
"""Seconds for the kernels of a group; beside other work on the machine, too."""
_INCLUDE = re.compile(r"^#include.*$", re.MULTILINE)


def outcomes(seeds: Sequence[int], target: str, folder: Path) -> Iterator[tuple[int, str]]:
    """Each seed with what `Trials.graph` says of it, but for the building of a library of its own; and with "" each
    time that work on it begins."""
    trials: dict[int, Trials] = {}
    said: dict[int, str] = {}
    with ExitStack() as stack:
        process = stack.enter_context(Process(budget(target)))
        with collected() as sources:
            for seed in seeds:
                yield seed, ""
                (folder / str(seed)).mkdir()
                trials[seed] = Trials(folder / str(seed), target, process)
                proto, feeds = draw_graph(Random(seed))
                said[seed] = trials[seed].optimize(proto.SerializeToString(), feeds, valid=True)
        library = compiled(sources, resolve_targets([target])[0], folder)
        for seed, trial in trials.items():
            yield seed, ""
            trial.process = process
            told = said[seed] or (trial.compare(library) if library is not None else trial.graph(seed))
            yield seed, told
            if told.partition(":")[0] not in GOOD:  # what a GPU stumbled over it does not get over
                process = stack.enter_context(Process(budget(target)))


@contextmanager
def collected() -> Iterator[dict[str, str]]:
    """Sources by the name of their operator, in place of what is built of them while this is open."""
    sources: dict[str, str] = {}

    def build(files: Sequence[Source], target: Target, place: Path, **_: object) -> Library:
        sources.update({s.op: s.text for s in files if s.op})
        place.mkdir()
        (place / "lib.so").write_text("compiled elsewhere")
        return Library(target.name, place / "lib.so", tuple(s.op for s in files if s.op))

    with patch("fusion_cli.produce.build", build):
        yield sources


@contextmanager
def rules_read_once() -> Iterator[None]:
    """They are the same for all."""

    @cache
    def load(*arguments: object) -> object:
        return load_rules(*arguments)

    with patch("fusion_cli.analyse.load_rules", lambda *a: load(*(tuple(x) if isinstance(x, list) else x for x in a))):
        yield


def compiled(sources: dict[str, str], target: Target, folder: Path) -> Path | None:
    """A library of all operators; None where it does not compile."""
    tools = toolchain(target, debug=False)
    assert tools is not None
    headers = sorted({line for text in sources.values() for line in _INCLUDE.findall(text)})
    parts = [f"namespace in_{op} {{\n{_INCLUDE.sub('', text)}\n}}" for op, text in sources.items()]
    kernels, register = folder / f"all{SUFFIX[target.kind]}", folder / "register.cc"
    kernels.write_text("\n".join([*headers, *parts]))
    register.write_text(emit_registration(target, [SimpleNamespace(name=op) for op in sources]).text)
    units = [(kernels, tools.kernel_flags), (register, tools.register_flags)]
    compiler, objects = tools.compiler.command, [str(path.with_suffix(".o")) for path, _ in units]
    commands = [
        [*compiler, *flags, f"-I{resource_dir('templates')}", "-c", str(path), "-o", made]
        for (path, flags), made in zip(units, objects, strict=True)
    ]
    library = folder / "all.so"
    commands.append([*compiler, *objects, "-o", str(library), *tools.link_flags])
    return library if all(run(command, Budget(_COMPILING)).returncode == 0 for command in commands) else None


def main() -> None:
    warnings.simplefilter("ignore")
    target, seeds = sys.argv[1], [int(seed) for seed in sys.argv[2:]]
    with (
        os.fdopen(os.dup(1), "w") as answers,
        tempfile.TemporaryDirectory(prefix="fuzz-") as folder,
        rules_read_once(),
    ):
        os.dup2(2, 1)  # what libraries print must not come between the answers
        for outcome in outcomes(seeds, target, Path(folder)):
            print(json.dumps(outcome), file=answers, flush=True)


if __name__ == "__main__":
    main()
