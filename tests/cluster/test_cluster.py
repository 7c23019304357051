"""Several models on several workers: the same as one after the other, whatever dies meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import CliRunner

from fusion_cli.cli.cluster_models import main, optimize_models
from fusion_cli.cluster import run_all
from fusion_cli.cluster.outcomes import RESULTS, Task, optimize_one, read_results
from fusion_cli.errors import FusionError
from fusion_cli.types import Options
from tests.helpers.cli_helpers import ROOT, write_model

OPTIONS = Options(targets=("portable",), force=True)
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


def call(*arguments: object) -> Any:
    return CliRunner().invoke(main, [*map(str, arguments), "--target", "portable", "--force", "--json"])


# ---- here


def test_a_folder_is_optimized_and_not_again(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = call(models, "-o", out)
    assert first.exit_code == 0, first.output
    outcomes = json.loads(first.stdout)
    assert [Path(o["output"]).relative_to(out).as_posix() for o in outcomes] == [
        "below/m0.onnx",
        *(f"m{number}.onnx" for number in range(1, COUNT)),
    ]
    assert all(o["fusions"] and o["nodes"][1] < o["nodes"][0] and o["worker"] for o in outcomes)
    before, lines = written(out), (out / RESULTS).read_text()
    assert len(before) == COUNT
    assert json.loads(call(models, "-o", out).stdout) == outcomes
    assert (out / RESULTS).read_text() == lines
    with (models / "m2.onnx").open("ab") as file:
        file.write(b"\x32\x01x")  # another text of the model
    (out / "m3.onnx").unlink()
    shutil.rmtree(out / "m3.fusion")
    call(models, "-o", out)
    assert len((out / RESULTS).read_text().splitlines()) == COUNT + 2
    assert set(written(out)) == set(before)


def test_other_options_do_it_again(models: Path, tmp_path: Path) -> None:
    model, out = models / "m1.onnx", tmp_path / "out"
    for options in (OPTIONS, OPTIONS, Options(targets=("portable",), force=True, opt_level=1)):
        optimize_models([str(model)], out, options, "local")
    assert len((out / RESULTS).read_text().splitlines()) == 2


def test_one_that_fails_does_not_stop_the_others(models: Path, tmp_path: Path) -> None:
    (models / "m1.onnx").write_bytes(b"\xff no model")
    result = call(models, "-o", tmp_path / "out")
    assert result.exit_code == 1
    errors = [o["error"] for o in json.loads(result.stdout)]
    assert [bool(e) for e in errors] == [False, True, False, False, False]
    assert "m1.onnx: not an ONNX model" in errors[1]
    table = CliRunner().invoke(main, [str(models), "-o", str(tmp_path / "out"), "--target", "portable", "--force"])
    assert "FAILED" in table.stdout
    assert "m4.onnx" in table.stdout


def test_a_run_that_was_killed_while_it_noted_goes_on(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    optimize_models([str(models / "m1.onnx")], out, OPTIONS, "local")
    with (out / RESULTS).open("a") as file:
        file.write('{"model": "half a li')
    (known,) = read_results(out)
    assert known.endswith("m1.onnx")
    optimize_models([str(models / "m2.onnx")], out, OPTIONS, "local")
    assert len(read_results(out)) == 2


def test_what_is_wrong_is_said(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for executor in ("spark://here:1", "dask://", "remote"):
        result = call(models, "-o", tmp_path / "out", "--executor", executor)
        assert result.exit_code == 1
        assert f"no executor '{executor}'" in result.stderr
    assert "there are no models" in call(tmp_path / "out", "-o", tmp_path / "other").stderr
    twice = call(models, models / "m1.onnx", "-o", tmp_path / "out")
    assert "goes to the same place" in twice.stderr
    for name, package in (("distributed", "Dask"), ("ray", "Ray")):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(FusionError, match=rf"{package} is not installed \(pip install 'onnx-fusion-cli"):
            list(run_all(optimize_one, [], f"{package.lower()}://here:1"))


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


def test_a_cluster_that_loses_a_worker_gives_what_one_machine_gives(
    models: Path, tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = optimize_models([str(models)], tmp_path / "alone", OPTIONS, "local")
    tasks = [Task(Path(o.model), tmp_path / "out" / Path(o.model).name, OPTIONS) for o in alone]
    results, killed = {}, ""
    for index, result in run_all(optimize_one, tasks, address(cluster)):
        assert not isinstance(result, Exception), result
        killed = killed or kill_a_busy_worker(cluster)
        results[index] = result
    assert sorted(results) == list(range(COUNT))
    assert [results[i].error for i in range(COUNT)] == [""] * COUNT
    assert len({r.worker for r in results.values()}) > 1
    assert killed
    made = {Path(name).name: data for name, data in written(tmp_path / "alone").items()}
    assert written(tmp_path / "out") == made
    assert [p.name for p in (tmp_path / "out").iterdir() if p.name.startswith(".")] == []


def test_the_command_takes_a_scheduler(models: Path, tmp_path: Path, cluster: Any) -> None:
    result = call(models, "-o", tmp_path / "out", "--executor", address(cluster))
    assert result.exit_code == 0, result.output
    assert len({o["worker"] for o in json.loads(result.stdout)}) > 1
    assert len(written(tmp_path / "out")) == COUNT


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
    optimize_models([str(models)], tmp_path / "alone", OPTIONS, "local")
    outcomes = optimize_models([str(models)], tmp_path / "out", OPTIONS, ray_cluster)
    assert [o.error for o in outcomes] == [""] * COUNT
    assert written(tmp_path / "out") == written(tmp_path / "alone")


def die(_: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def test_a_task_that_kills_every_worker_is_an_error_of_its_own(cluster: Any) -> None:
    (found,) = run_all(die, [0], address(cluster))
    assert "KilledWorker" in type(found[1]).__name__
