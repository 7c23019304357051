"""Compiling generated sources into one custom-op library, in parallel, through a content-addressed cache.

<cache>/objects/<key>/<sha256>.o     key: compiler, flags, source without comments, our headers
<cache>/libraries/<key>/<sha256>.so  key: the objects and the link flags
<cache>/logs/<key>.log               the output of a build that failed
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import ninja

from fusion_cli.build.cache import (
    claim,
    default_cache_dir,
    digest,
    find,
    included,
    put,
    shrink,
    size_limit,
    strip_comments,
)
from fusion_cli.build.compiler import Compiler
from fusion_cli.build.toolchain import Toolchain, advice, find_compiler, suffix, toolchain
from fusion_cli.errors import BuildError
from fusion_cli.files import copy_whole
from fusion_cli.folders import collect, locked, scratch
from fusion_cli.limits import MORE_TIME, Budget, run
from fusion_cli.listener import NOBODY, Listener
from fusion_cli.resources import resource_dir
from fusion_cli.types import Library, Source, Target

__all__ = ["Compiler", "advice", "build", "default_cache_dir", "find_compiler", "named"]

_FORMAT = "2"  # of the cache: raise it when the meaning of a key changes
_SHOWN_LINES = 12
_WORK = "build"
"""What folders to work in are named after."""
_DONE = re.compile(r"\[(?P<done>\d+)/(?P<total>\d+)\] [0-9a-f]+/(?P<name>.+)")
"""What ninja says of a source when it is compiled."""

_Tell = Callable[[int, int, str], None]
"""Who is told that so many of the sources are compiled, and which was the last."""


@dataclass(frozen=True)
class _Unit:
    """A source, or a part of one, with its command line and the name of its object."""

    source: Source
    command: tuple[str, ...]
    key: str


def build(
    sources: Sequence[Source],
    target: Target,
    out_dir: Path,
    *,
    jobs: int = 0,
    debug: bool = False,
    budget: Budget | None = None,
    cache_dir: Path | None = None,
    listener: Listener = NOBODY,
) -> Library:
    """Compile `sources` (one of them the registration file) and link them into a library in `out_dir`.

    `jobs` compilers run at once (0: one per core); `listener` hears of each source that was compiled. The library is
    named by its content; `Library.compiled` counts the sources that were not in the cache. Raises BuildError without a
    compiler, if one fails or takes more than the `budget`, if a file cannot be written, or if others can write to the
    cache.
    """
    start = time.perf_counter()
    tools = toolchain(target, debug=debug)
    if tools is None:
        raise BuildError(f"there is no compiler for target {target.name}", hint=advice(target))

    def tell(done: int, total: int, what: str) -> None:
        listener.step(done, total, f"{what} for {target.name}")

    cache = cache_dir or default_cache_dir()
    budget = budget or Budget()
    units = [unit for s in sources for unit in _units(s, tools, debug)]
    try:
        claim(cache)
        with locked(cache):
            collect(cache / _WORK)
        objects, compiled = _compile(units, tools, cache, jobs, budget, tell)
        library = _link(objects, target, tools, cache, budget)
        path = out_dir / f"lib{target.name}-{library.stem[:16]}{library.suffix}"
        out_dir.mkdir(parents=True, exist_ok=True)
        copy_whole(library, path)
        if compiled:
            shrink(cache, size_limit())
    except subprocess.TimeoutExpired as e:
        raise BuildError(f"compiling took more than {budget.seconds:g} s", where=target.name, hint=MORE_TIME) from e
    except OSError as e:
        raise BuildError(f"cannot write: {e.strerror or e}", where=str(e.filename or out_dir)) from e
    ops = tuple(s.op for s in sources if s.op)
    return Library(target.name, path, ops, compiled, time.perf_counter() - start, tools.compiler.version)


def named(library: Library) -> Library:
    """The library renamed by its target alone, for good: while a model is tried, a process that has loaded a library
    would take another of the same path for it."""
    path = library.path.with_name(f"{library.target}{library.path.suffix}")
    return replace(library, path=library.path.rename(path))


def _units(source: Source, tools: Toolchain, debug: bool) -> Iterator[_Unit]:
    """A source's parts, or all of it."""
    common = tools.kernel_flags if source.op else tools.register_flags
    root = resource_dir("templates")
    headers = [strip_comments(h.read_text()) for h in included(source.text, root)]
    text = source.text if debug else strip_comments(source.text)
    for part in range(source.parts):
        flags = (*common, f"-DFUSION_PART={part}") if source.parts > 1 else common
        key = digest((_FORMAT, tools.compiler.version, *flags, Path(source.filename).suffix, text, *headers))
        yield _Unit(source, (*tools.compiler.command, *flags, f"-I{root}", "-c"), key)


def _compile(
    units: Sequence[_Unit], tools: Toolchain, cache: Path, jobs: int, budget: Budget, tell: _Tell
) -> tuple[list[Path], int]:
    """The objects, compiled where the cache lacks them, and how many sources that were."""
    folders = {u.key: cache / "objects" / u.key for u in units}
    found = {key: path for key, folder in folders.items() if (path := find(folder)) is not None}
    missing = {u.key: u for u in units if u.key not in found}
    if missing:
        with scratch(cache / _WORK) as work:
            for key, unit in missing.items():
                (work / key).mkdir()
                (work / key / unit.source.filename).write_text(unit.source.text)
            tell(0, len(missing), "compiling")
            failure = _ninja(work, missing.values(), jobs, budget, tell)
            made = {key: path for key in missing if (path := work / f"{key}.o").is_file()}
            found |= {key: put(path, folders[key]) for key, path in made.items()}
        if failure is not None:
            lacking = dict.fromkeys(u.source.filename for key, u in missing.items() if key not in found)
            raise _failed(failure, list(lacking), cache)
    return [found[u.key] for u in units], len({u.source for u in missing.values()})


def _link(objects: Sequence[Path], target: Target, tools: Toolchain, cache: Path, budget: Budget) -> Path:
    """The library of these objects, linked if the cache lacks it."""
    folder = cache / "libraries" / digest((_FORMAT, target.name, *tools.link_flags, *(o.stem for o in objects)))
    library = find(folder)
    if library is not None:
        return library
    with scratch(cache / _WORK) as work:
        made = work / f"library{suffix(target)}"
        command = [*tools.compiler.command, *map(str, objects), "-o", str(made), *tools.link_flags]
        result = run(command, budget, environment=_environment())
        if result.returncode != 0:
            raise _failed(shlex.join(command) + "\n" + result.stdout + result.stderr, ["the library"], cache)
        return put(made, folder)


def _ninja(work: Path, units: Iterable[_Unit], jobs: int, budget: Budget, tell: _Tell) -> str | None:
    """Run the compile commands in parallel, each in a folder of its key; returns their output if one failed."""

    def hear(line: str) -> None:
        if done := _DONE.match(line):
            tell(int(done["done"]), int(done["total"]), done["name"])

    lines = ["rule compile", "  command = $compiler $in -o $out", "  description = $in"]
    for unit in units:
        compiler = shlex.join(unit.command).replace("$", "$$")
        lines += [f"build {unit.key}.o: compile {unit.key}/{unit.source.filename}", f"  compiler = {compiler}"]
    (work / "build.ninja").write_text("\n".join(lines) + "\n")
    program = Path(ninja.BIN_DIR) / ("ninja.exe" if os.name == "nt" else "ninja")
    arguments = [str(program), "-k", "0", "-j", str(jobs or os.cpu_count() or 1)]
    result = run(arguments, budget, folder=work, environment=_environment(), heard=hear)
    return None if result.returncode == 0 else result.stdout + result.stderr


def _environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C", "NINJA_STATUS": "[%f/%t] "}


def _failed(output: str, what: Sequence[str], cache: Path) -> BuildError:
    """The error for a compiler that failed, with the end of its output and the place of all of it."""
    log = cache / "logs" / f"{digest((output,))[:16]}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(output)
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith("ninja:")]
    errors = [line for line in lines if "error" in line or "undefined reference" in line]
    shown = (errors or lines)[-_SHOWN_LINES:]
    return BuildError("the compiler failed:\n  " + "\n  ".join(shown), where=", ".join(what), hint=f"full log: {log}")
