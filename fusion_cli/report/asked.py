"""What was asked of a run, as reports and locks keep it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fusion_cli.types import Options


@dataclass(frozen=True)
class Asked:
    """The options that decide what is found and written; paths are text, as they were given."""

    targets: tuple[str, ...] = ("auto",)
    rules: tuple[str, ...] = ()
    rule_paths: tuple[str, ...] = ()
    opt_level: int = 2
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dims: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    fixed_dims: Mapping[str, int] = field(default_factory=dict)
    assume_constant: tuple[str, ...] = ()
    inputs: str | None = None
    algebra: bool = True
    force: bool = False
    verify: bool = True


def asked(options: Options) -> Asked:
    """Those of a run."""
    return Asked(
        options.targets,
        options.rules,
        tuple(path.as_posix() for path in options.rule_paths),
        options.opt_level,
        dict(options.shapes),
        dict(options.dims),
        dict(options.fixed_dims),
        options.assume_constant,
        None if options.inputs is None else options.inputs.as_posix(),
        options.algebra,
        options.force,
        options.verify,
    )
