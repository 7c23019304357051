"""What GPU benchmarks tell of counters, clocks and power, and of tools that tell nothing."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import click
import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from benchmarks import gpu_bytes, gpu_power, gpu_profile, nsight

NCU = """==PROF== Connected to process 1
{"device": "NVIDIA H200", "torch": "2.11.0"}
"ID","Process ID","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum"
"","","","byte","byte"
"0","1","softmax","2048","0"
"1","1","gemm<a|b>","1,048,576","1024"
"2","1","softmax","4096","1024"
"""


def test_bytes_are_told_kernel_by_kernel_the_most_first() -> None:
    gemm, softmax = gpu_bytes.traffic(NCU)
    assert (gemm.name, gemm.launches, gemm.read, gemm.written) == ("gemm<a|b>", 1, 1048576, 1024)
    assert (softmax.name, softmax.launches, softmax.read, softmax.written) == ("softmax", 2, 6144, 1024)
    with pytest.raises(click.ClickException, match="permission"):
        gpu_bytes.traffic("==ERROR== no permission to read counters")


def test_bytes_have_a_page_that_keeps_other_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = onnx.numpy_helper.from_array(np.ones(256, np.float32), "w")
    node = onnx.helper.make_node("Add", ["x", "w"], ["y"])
    values = [onnx.helper.make_tensor_value_info(name, 1, [256]) for name in "xy"]
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", values[:1], values[1:], [tensor]))
    said = {"unoptimized": NCU.replace("1,048,576", "8,388,608"), "quick": NCU}
    monkeypatch.setattr(nsight, "profiled", lambda _, way, asked: said[way])
    monkeypatch.setattr("shutil.which", lambda _: "ncu")
    for id in ("one", "other", "one"):
        for path in (tmp_path / f"{id}.onnx", tmp_path / f"{id}.quick.onnx"):
            onnx.save(model, path)
        arguments = ["--model", id, "--made", "quick", "--work", str(tmp_path), "--results", str(tmp_path / "pages")]
        run = CliRunner().invoke(gpu_bytes.main, arguments)
        assert run.exit_code == 0, run.output
    assert "quick: 1.0 MiB by 3 kernels, without weights 1.0 MiB\n    1.0 +   0.0 MiB  1 x gemm" in run.output
    assert "87.4% of the activations' bytes saved (to be 85%); 1 nodes" in run.output
    page = (tmp_path / "pages" / "gpu-bytes-nvidia-h200.md").read_text()
    assert page.count("## one, quick") == page.count("## other, unoptimized") == 1
    assert "| one | quick | 1 | 8.0 | 3 | 1.0 | 3 | 0.0 | 87.4% |" in page
    assert "| `softmax` | 2 | 0.0 | 0.0 |" in page
    kept = json.loads((tmp_path / "pages" / "gpu-bytes-nvidia-h200.json").read_text())
    assert [(row["id"], row["after"][0]["read"]) for row in kept] == [("one", 1048576), ("other", 1048576)]


def test_bytes_without_a_model_or_ncu_say_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    run = CliRunner().invoke(gpu_bytes.main, ["--work", str(tmp_path)])
    assert "no ncu on PATH" in run.output
    (tmp_path / "ncu").write_text("#!/bin/sh\n")
    (tmp_path / "ncu").chmod(0o755)
    run = CliRunner().invoke(gpu_bytes.main, ["--work", str(tmp_path)])
    assert run.exit_code == 1
    assert "python -m benchmarks.gpu_models --only decomposed_b1_s2048_d4096" in run.output


PROFILED = """==PROF== Connected to process 1
{"device": "NVIDIA H200", "torch": "2.11.0"}
"ID","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum","gpu__time_duration.sum",\
"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed","sm__warps_active.avg.pct_of_peak_sustained_active",\
"smsp__issue_active.avg.per_cycle_active","sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",\
"sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active",\
"smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",\
"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio","smsp__other.ratio"
"","","byte","byte","nsecond","%","%","inst/cycle","%","%","inst","inst",""
"0","gemm<a|b>","2,097,152","1048576","12,340","41.6","18.75","0.254","0","88.2","0.5","3.25","9"
"1","softmax","0","0","1500","","50","0.1","","","0","0",""
""".replace("\\\n", "")


def put_tool(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A shell's script as the first tool of the name on PATH."""
    tool = folder / name
    tool.write_text(f"#!/bin/sh\n{script}")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_what_kernels_wait_for_is_told_launch_by_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_tool("ncu", tmp_path, monkeypatch, f"echo \"$@\" >> {tmp_path}/asked\ncat <<'END'\n{PROFILED}END\n")
    for id in ("one", "other"):
        (tmp_path / f"{id}.kernels.onnx").touch()
    folders = ["--made", "kernels", "--work", str(tmp_path), "--results", str(tmp_path / "pages")]
    for _ in range(2):
        run = CliRunner().invoke(gpu_profile.main, ["one", "other", *folders])
        assert run.exit_code == 0, run.output
    assert run.output.count("`gemm<a|b>`  12.3  2.0  1.0  42%  88%  25%  19%  long scoreboard 3.2, barrier 0.5") == 2
    asked = (tmp_path / "asked").read_text()
    assert "--section WarpStateStats" in asked
    assert f"-m benchmarks.gpu_once {tmp_path}/one.onnx kernels" in asked
    page = (tmp_path / "pages" / "gpu-profile-nvidia-h200.md").read_text()
    assert [line.split(",")[0] for line in page.splitlines() if line.startswith("## ")] == ["## one", "## other"]
    assert "| `softmax` | 1.5 | 0.0 | 0.0 | 0% | 0% | 10% | 50% |" in page


def test_a_profile_of_what_was_not_made_says_how_to_make_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: "ncu")
    run = CliRunner().invoke(gpu_profile.main, ["one", "--made", "own", "--work", str(tmp_path)])
    assert run.exit_code == 1
    assert "python -m benchmarks.kernels --only one" in run.output


def test_what_ncu_fails_with_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_tool("ncu", tmp_path, monkeypatch, "echo no permission; exit 1\n")
    with pytest.raises(click.ClickException, match="ncu: no permission"):
        nsight.profiled(tmp_path / "one.onnx", "quick", ())


COLD, CAPPED = "1980, 1980, 120.5, 700.00, Not Active", "1470, 1980, 692.1, 700.00, Active"
FREE = "1755, 1980, 650.1, 700.00, Not Active"


def test_whether_power_is_the_limit_is_told_of_a_warm_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "\n".join([COLD] * 10 + [CAPPED] * 3 + [FREE, "1470, 19"])
    script = f"cat <<'END'\n{lines}\nEND\necho \"$@\" > {tmp_path}/asked\nexec sleep 60\n"
    put_tool("nvidia-smi", tmp_path, monkeypatch, script)
    (tmp_path / "one.quick.onnx").touch()

    def watched(path: Path, made: str, seconds: float) -> tuple[float, list[gpu_power.Sample]]:
        with gpu_power.told("GPU-1") as lines:
            while not (tmp_path / "asked").exists():
                time.sleep(0.01)
        return seconds, gpu_power.samples(lines)

    monkeypatch.setattr(gpu_power, "watched", watched)
    run = CliRunner().invoke(gpu_power.main, ["one", "--work", str(tmp_path), "--seconds", "2"])
    assert run.output == (
        "one, quick: 2.0000 ms a run at 1470 of 1980 MHz and 692 of 700 W, slower for its power 75% of the time\n"
    )
    assert "-i GPU-1 --query-gpu=clocks.sm," in (tmp_path / "asked").read_text()


@pytest.mark.parametrize(
    ("lines", "why"),
    [([COLD] * 10, "told too little: 10 times"), (["1980, 1980, [N/A], 700, Active"], "does not tell a number")],
)
def test_a_gpu_that_tells_nothing_of_its_power_is_an_error(lines: list[str], why: str) -> None:
    with pytest.raises(click.ClickException, match=why):
        gpu_power.samples(lines)


def test_power_of_what_was_not_made_says_how_to_make_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_tool("nvidia-smi", tmp_path, monkeypatch, "")
    run = CliRunner().invoke(gpu_power.main, ["one", "--work", str(tmp_path)])
    assert run.exit_code == 1
    assert "python -m benchmarks.gpu_models --only one" in run.output
