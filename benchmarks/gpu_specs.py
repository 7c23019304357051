"""Which models the GPU benchmarks measure, at which sizes and with which targets: the table in gpu_models.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal

from benchmarks.runs import Entry

TABLE = Path(__file__).with_name("gpu_models.toml")
TINY = "tiny_"
"""Before the id of a model whose sizes are small: what tries the benchmark itself, also on a machine without a GPU."""


@dataclass(frozen=True)
class Spec:
    """A model and the sizes of its inputs; `cached` are tokens in a key/value cache, `config` what of the model is not
    as gpu_zoo.py has it, `target` the milliseconds to reach, `over_ort` and `over_torch` the ratios to their best."""

    id: str
    kind: str
    dtype: Literal["f16", "f32"]
    batch: int
    seq: int = 1
    cached: int = 0
    dynamic: bool = False
    """Whether batch and sequence are open in the export."""
    config: Mapping[str, Any] = field(default_factory=dict)
    target: Mapping[Literal["fused", "graph"], float] = field(default_factory=dict)
    over_ort: float = 1.5
    over_torch: float = 1.15

    @property
    def is_tiny(self) -> bool:
        return self.id.startswith(TINY)

    @property
    def entry(self) -> Entry:
        """The model as `benchmarks.runs` knows it."""
        return {"id": self.id, "dtype": self.dtype}


def load_specs(table: Literal["model", "dynamic"], *, tiny: bool = False) -> tuple[Spec, ...]:
    """The models of one list of the table, in order."""
    found = [Spec(**row) for row in tomllib.loads(TABLE.read_text("utf-8"))[table]]
    return tuple(small(s) if tiny else s for s in found)


def small(spec: Spec) -> Spec:
    """The same model with few tokens; gpu_zoo.py makes it narrow too."""
    batch, seq, cached = min(spec.batch, 2), min(spec.seq, 16), min(spec.cached, 7)
    return replace(spec, id=TINY + spec.id, batch=batch, seq=seq, cached=cached, config={}, target={})


def spec_of(id: str) -> Spec:
    """The model of an id of either list. KeyError for one that is in none."""
    tiny = id.startswith(TINY)
    return {s.id: s for s in (*load_specs("model", tiny=tiny), *load_specs("dynamic", tiny=tiny))}[id]


def chosen(specs: Sequence[Spec], only: str) -> list[Spec]:
    """Those whose id one of the globs in `only`, separated by commas, matches (with `tiny_` before it or not)."""
    globs = [g.strip() for g in only.split(",")]
    return [s for s in specs if any(fnmatch(s.id.removeprefix(TINY), g.removeprefix(TINY)) for g in globs)]
