"""Several models on several workers: the same as one after the other, whatever dies meanwhile."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import Result

from fusion_cli.cluster import run_all
from fusion_cli.cluster.outcomes import Task, lost, optimize_one
from fusion_cli.types import Options
from tests.helpers.cli_helpers import ROOT, call, write_model

OPTIONS = Options(targets=("portable",), force=True)
HOW = ("--target", "portable", "--force")
COUNT = 5


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder of models that differ in their weights, one of them below."""
    folder = tmp_path / "models"
    (folder / "below").mkdir(parents=True)
    for number in range(COUNT):
        path = write_model(folder / ("below" if number == 0 else "") / f"m{number}.onnx")
        model = onnx.load(path)
        model.doc_string = str(number)
        onnx.save(model, path)
    return folder


def written(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.onnx"))}


def optimize(models: Path, out: Path, executor: str = "local", *options: str) -> Result:
    return call("optimize", models, "-o", out, "--executor", executor, *HOW, *options)


def test_what_is_wrong_is_said(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for executor in ("spark://here:1", "dask://", "remote"):
        result = optimize(models, tmp_path / "out", executor)
        assert result.exit_code == 1
        assert f"no executor '{executor}'" in result.stderr
    for name, extra in (("distributed", "dask"), ("ray", "ray")):
        monkeypatch.setitem(sys.modules, name, None)
        result = optimize(models, tmp_path / "out", f"{extra}://here:1")
        assert result.exit_code == 1
        assert f"{extra.title()} is not installed (pip install 'onnx-fusion-cli[{extra}]')" in result.stderr
    assert not (tmp_path / "out").exists()
    one = optimize(models / "m1.onnx", tmp_path / "out.onnx", "dask://here:1")
    assert one.exit_code == 2
    assert "--executor is for several models" in one.stderr
    verbose = optimize(models, tmp_path / "out", "dask://here:1", "--verbose")
    assert verbose.exit_code == 2
    assert "--verbose is for what is done here" in verbose.stderr


def test_workers_of_another_version_refuse(models: Path, tmp_path: Path) -> None:
    outcome = optimize_one(Task(models / "m1.onnx", tmp_path / "out.onnx", OPTIONS, version="0.0.9"))
    assert "0.0.9 asks" in outcome.error
    assert not (tmp_path / "out.onnx").exists()


# ---- on a Dask cluster of several processes


@pytest.fixture
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    with distributed.LocalCluster(n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None) as made:
        yield made


def address(cluster: Any) -> str:
    return str(cluster.scheduler_address).replace("tcp://", "dask://")


def kill_a_busy_worker(cluster: Any) -> str:
    """Kill the process of a worker that is at work; returns what it was called in outcomes."""
    from distributed import Client

    with Client(cluster.scheduler_address) as client:
        pids = client.run(os.getpid)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            busy = [worker for worker, tasks in client.processing().items() if tasks]
            if busy:
                os.kill(pids[busy[0]], signal.SIGKILL)
                return str(pids[busy[0]])
            time.sleep(0.01)
    raise AssertionError("no worker was ever busy")


def test_a_cluster_that_loses_a_worker_gives_what_one_machine_gives(models: Path, tmp_path: Path, cluster: Any) -> None:
    assert optimize(models, tmp_path / "alone").exit_code == 0
    with ThreadPoolExecutor() as beside:
        killed = beside.submit(kill_a_busy_worker, cluster)
        result = optimize(models, tmp_path / "out", address(cluster), "--json")
    assert killed.result()
    assert result.exit_code == 0, result.output
    outcomes = json.loads(result.stdout)
    assert [o["output"] for o in outcomes] == [str(path) for path in sorted((tmp_path / "out").rglob("*.onnx"))]
    assert len({o["worker"] for o in outcomes}) > 1
    assert len(written(tmp_path / "alone")) == COUNT
    assert written(tmp_path / "out") == written(tmp_path / "alone")
    assert [p.name for p in (tmp_path / "out").rglob(".*")] == []


def test_what_was_done_here_is_not_done_again_there(models: Path, tmp_path: Path, cluster: Any) -> None:
    (models / "m1.onnx").write_bytes(b"\xff no model")
    here = optimize(models, tmp_path / "out")
    assert here.exit_code == 1
    report = tmp_path / "out" / "m2.fusion" / "report.json"
    before = report.stat().st_mtime_ns
    (tmp_path / "out" / "m3.onnx").unlink()
    there = optimize(models, tmp_path / "out", address(cluster))
    assert there.exit_code == 1
    assert "m1.onnx: not an ONNX model" in there.stderr
    assert "5 models: 4 done, 3 of them by an earlier run, 1 failed" in there.stdout
    alone, shared = rows_of(here), rows_of(there)
    assert shared[0].split() == [*alone[0].split(), "worker"]
    assert [row.split()[0] for row in shared[1:-1]] == [row.split()[0] for row in alone[1:-1]]
    assert report.stat().st_mtime_ns == before
    assert (tmp_path / "out" / "m3.onnx").is_file()


def rows_of(result: Result) -> list[str]:
    """The lines of the table."""
    return result.stdout[result.stdout.index("model ") :].splitlines()


@pytest.fixture
def ray_cluster() -> Iterator[str]:
    """A Ray head of one machine, with two places for tasks."""
    pytest.importorskip("ray", reason="ray is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "ray.scripts.scripts"]
    start = ["start", "--head", "--num-cpus=2", "--include-dashboard=false", f"--ray-client-server-port={port}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([*command, *start, "--disable-usage-stats", "--port=0"], check=True, env=environment)
    yield f"ray://127.0.0.1:{port}"
    subprocess.run([*command, "stop", "--force"], check=True)


def test_ray_gives_what_one_machine_gives(models: Path, tmp_path: Path, ray_cluster: str) -> None:
    assert optimize(models, tmp_path / "alone").exit_code == 0
    result = optimize(models, tmp_path / "out", ray_cluster)
    assert result.exit_code == 0, result.output
    assert written(tmp_path / "out") == written(tmp_path / "alone")


def die(_: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def test_a_task_that_kills_every_worker_is_an_error_of_its_own(cluster: Any) -> None:
    ((_, error),) = run_all(die, [0], address(cluster))
    assert isinstance(error, Exception)
    outcome = lost(Task(Path("m.onnx"), None, OPTIONS), error)
    assert "m.onnx: no worker has finished it: KilledWorker: " in outcome.error
    assert outcome.exit_code == 1
