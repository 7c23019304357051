"""The same work on many tasks, on the machines of a Dask or Ray cluster, which has the scheduling, the retries and the
transport."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from fusion_cli.errors import FusionError
from fusion_cli.version import install

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

LOCAL = "local"
"""The executor that is no cluster: one task after the other, in the process that asks."""
_RETRIES = 3
"""How often a task is given to another worker when its own dies."""


def run_all(
    work: Callable[[_Task], _Result], tasks: Sequence[_Task], executor: str
) -> Iterator[tuple[int, _Result | Exception]]:
    """The result of each task with its index, as they arrive; an exception where one could not be had: `work` raised
    it, or every worker that tried died.

    `executor` is "dask://HOST:PORT" of a scheduler, or "ray://HOST:PORT". A task whose worker dies is done again by
    another, so `work` must be harmless twice. Raises FusionError for an executor that there is not.
    """
    engine, _, address = executor.partition("://")
    if engine == "dask" and address:
        return _on_dask(work, tasks, address)
    if engine == "ray" and address:
        return _on_ray(work, tasks, address)
    raise FusionError(f"no executor '{executor}'", hint=f"there are {LOCAL}, dask://HOST:PORT and ray://HOST:PORT")


def _on_dask(
    work: Callable[[_Task], _Result], tasks: Sequence[_Task], address: str
) -> Iterator[tuple[int, _Result | Exception]]:
    try:
        from distributed import Client, as_completed
    except ImportError as e:
        raise FusionError("Dask is not installed", hint=install("dask")) from e
    try:
        client = Client(f"tcp://{address}")
    except OSError as e:
        raise FusionError("no scheduler answers", where=f"dask://{address}", hint="start one: dask scheduler") from e
    with client:
        # Not pure: the files that a task reads may have changed since it was last asked for.
        futures = {client.submit(work, t, pure=False, retries=_RETRIES): i for i, t in enumerate(tasks)}
        for future in as_completed(futures):
            failure = future.exception() if future.status == "error" else None
            yield futures[future], failure if failure is not None else future.result()


def _on_ray(
    work: Callable[[_Task], _Result], tasks: Sequence[_Task], address: str
) -> Iterator[tuple[int, _Result | Exception]]:
    try:
        import ray
    except ImportError as e:
        raise FusionError("Ray is not installed", hint=install("ray")) from e
    try:
        ray.init(f"ray://{address}" if address != "auto" else "auto", log_to_driver=False)
    except ConnectionError as e:
        raise FusionError("no cluster answers", where=f"ray://{address}", hint="start one: ray start --head") from e
    try:
        remote = ray.remote(max_retries=_RETRIES)(work)
        waiting = {remote.remote(task): i for i, task in enumerate(tasks)}
        while waiting:
            (done,), _ = ray.wait(list(waiting), num_returns=1)
            index = waiting.pop(done)
            try:
                yield index, ray.get(done)
            except Exception as e:  # what the task raised, or Ray's own
                yield index, e
    finally:
        ray.shutdown()
