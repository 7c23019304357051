"""An ONNX graph-to-graph fusion compiler whose output runs on stock ONNX Runtime.

`optimize` writes the fused model and its kernels; `session` opens a model with the kernels that fit the machine;
`trust` has those run here that were built elsewhere. The last two need nothing but ONNX Runtime, and are all that
`onnx-fusion-runtime` holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from fusion_cli.version import DISTRIBUTION, __version__

if TYPE_CHECKING:
    import onnx
    import onnxruntime

    from fusion_cli.report import Report

__all__ = ["__version__", "optimize", "session", "trust"]

AnyPath = str | PathLike[str]


def optimize(
    model: AnyPath | onnx.ModelProto,
    output: AnyPath | None = None,
    *,
    targets: str | Sequence[str] = ("auto",),
    rules: Sequence[str] = (),
    rule_paths: Sequence[AnyPath] = (),
    opt_level: int = 2,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int | tuple[int, int]] | None = None,
    fixed_dims: Mapping[str, int] | None = None,
    assume_constant: Sequence[str] = (),
    inputs: AnyPath | None = None,
    decisions: AnyPath | None = None,
    tuning: AnyPath | None = None,
    tune: bool = False,
    require_tuned: bool = False,
    remeasure: bool = False,
    algebra: bool = True,
    force: bool = False,
    overwrite: bool = False,
    in_place: bool = False,
    called: str = "",
    dry_run: bool = False,
    debug: bool = False,
    verify: bool = True,
    require_verified: bool = False,
    jobs: int = 0,
    timeout: float | None = None,
    max_memory: float | None = None,
) -> Report:
    """Fuse `model`, a file or one in memory, for `targets` and write it to `output` with its bundle (nothing is written
    without `output`).

    The options are those of `fusion_cli.types.Options`; a dimension may be one number in place of a range. Raises
    `fusion_cli.errors.FusionError` with what went wrong, where, and how to mend it.
    """
    # Imported here: the pipeline brings in onnx, which a session needs not and should not wait for.
    try:
        from fusion_cli import pipeline
        from fusion_cli.types import Options
    except ImportError as error:
        if error.name != "fusion_cli":
            raise
        from fusion_cli.errors import FusionError

        message = "this is onnx-fusion-runtime, which opens optimized models and makes none"
        raise FusionError(message, hint=f"pip install {DISTRIBUTION} in its place") from error

    ranges = (dims or {}).items()
    asked = Options(
        targets=_several(targets),
        rules=_several(rules),
        rule_paths=tuple(map(Path, rule_paths)),
        opt_level=opt_level,
        shapes={name: tuple(shape) for name, shape in (shapes or {}).items()},
        dims={name: (size, size) if isinstance(size, int) else (size[0], size[1]) for name, size in ranges},
        fixed_dims=dict(fixed_dims or {}),
        assume_constant=_several(assume_constant),
        inputs=None if inputs is None else Path(inputs),
        decisions=None if decisions is None else Path(decisions),
        tuning=None if tuning is None else Path(tuning),
        tune=tune,
        require_tuned=require_tuned,
        remeasure=remeasure,
        algebra=algebra,
        force=force,
        overwrite=overwrite,
        in_place=in_place,
        called=called or ("" if isinstance(model, str | PathLike) else "a model in memory"),
        dry_run=dry_run,
        debug=debug,
        verify=verify,
        require_verified=require_verified,
        jobs=jobs,
        timeout=timeout,
        max_memory=max_memory,
    )
    with _file_of(model) as path:
        return pipeline.optimize(path, None if output is None else Path(output), asked)


def session(
    path_or_bytes: AnyPath | bytes,
    sess_options: onnxruntime.SessionOptions | None = None,
    providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
    provider_options: Sequence[Mapping[str, Any]] | None = None,
    *,
    bundle: AnyPath | None = None,
    trust: bool = False,
    **options: Any,
) -> onnxruntime.InferenceSession:
    """An ONNX Runtime session of a model, with the library of its bundle that fits `providers` and this machine
    registered. The arguments are those of `onnxruntime.InferenceSession`, and `bundle`, the folder of the kernels where
    it is not beside the model, or the model is in memory; with `trust` libraries run that were built elsewhere.

    What stops a library is a warning. Raises `fusion_cli.errors.FusionError` if the model cannot be read."""
    from fusion_cli import runtime

    given = (path_or_bytes, sess_options, providers, provider_options)
    return runtime.session(*given, bundle=bundle, trust=trust, **options)


def trust(model: AnyPath) -> None:
    """Have the libraries of a model, which another user or machine has built, run for this user as if they were built
    here, as `fusion-cli trust` does. Raises `fusion_cli.errors.FusionError`."""
    from fusion_cli.runtime import trust_model

    trust_model(Path(model))


def _several(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


@contextmanager
def _file_of(model: AnyPath | onnx.ModelProto) -> Iterator[Path]:
    """The model as a file. Raises FusionError for one that is too large to be one."""
    if isinstance(model, str | PathLike):
        yield Path(model)
        return
    import onnx
    from google.protobuf.message import EncodeError

    from fusion_cli.errors import ModelError

    with TemporaryDirectory(prefix="fusion-cli-") as folder:
        path = Path(folder) / "model.onnx"
        try:
            onnx.save(model, path)
        except (EncodeError, ValueError) as error:
            hint = "save it with onnx.save(..., save_as_external_data=True) and give the file"
            raise ModelError(f"cannot be saved: {error}", where="the model in memory", hint=hint) from error
        yield path
