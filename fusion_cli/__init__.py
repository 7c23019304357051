"""An ONNX graph-to-graph fusion compiler whose output runs on stock ONNX Runtime.

`optimize` writes the fused model and its kernels; `session` opens a model with the kernels that fit the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusion_cli.version import __version__

if TYPE_CHECKING:
    import onnxruntime

    from fusion_cli.report import Report

__all__ = ["__version__", "optimize", "session"]


def optimize(
    model: str | Path, output: str | Path | None = None, *, targets: Sequence[str] = ("auto",), **options: Any
) -> Report:
    """Fuse `model` for `targets` and write it to `output` with its bundle (nothing is written without `output`).

    `options` are the fields of `fusion_cli.types.Options`; paths may be strings, and a dimension one number in place
    of a range. Raises `fusion_cli.errors.FusionError` with what went wrong, where, and how to mend it.
    """
    # Imported here: the pipeline brings in onnx, which `fusion_cli.__version__` should not wait for.
    from fusion_cli import pipeline
    from fusion_cli.types import Options

    for name in ("inputs", "decisions"):
        if options.get(name) is not None:
            options[name] = Path(options[name])
    options["rules"] = tuple(options.get("rules", ()))
    options["assume_constant"] = tuple(options.get("assume_constant", ()))
    options["rule_paths"] = tuple(map(Path, options.get("rule_paths", ())))
    options["shapes"] = {name: tuple(shape) for name, shape in options.get("shapes", {}).items()}
    ranges = options.get("dims", {}).items()
    options["dims"] = {name: (size, size) if isinstance(size, int) else tuple(size) for name, size in ranges}
    asked = Options(targets=tuple(targets), **options)
    return pipeline.optimize(Path(model), None if output is None else Path(output), asked)


def session(
    path: str | Path, providers: Sequence[str | tuple[str, dict[str, Any]]] | None = None, **options: Any
) -> onnxruntime.InferenceSession:
    """An ONNX Runtime session of a model, with those of its bundle's libraries that fit `providers` registered."""
    from fusion_cli import runtime

    return runtime.session(path, providers=providers, **options)
