"""Running the command line in tests, on models small enough to be optimized in a second."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import CliRunner, Result

from fusion_cli.cli import main
from tests.helpers.graphs import parse

ROOT = Path(__file__).parents[2]
MODEL = """g (float[batch, seq, 32] x) => (float[batch, seq, 32] y) {
    n = LayerNormalization (x, gamma, beta)
    h = MatMul (n, w1)
    hb = Add (h, b1)
    gate = Sigmoid (hb)
    act = Mul (hb, gate)
    o = MatMul (act, w2)
    y = Add (o, x)
}"""
WEIGHTS = {"gamma": (32,), "beta": (32,), "w1": (32, 64), "b1": (64,), "w2": (64, 32)}

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")


def write_model(path: Path) -> Path:
    """A norm, a gated linear layer and a residual, with a name for every node."""
    model = parse(MODEL, WEIGHTS)
    for node in model.graph.node:
        node.name = f"{node.op_type}/{node.output[0]}"
    onnx.save(model, path)
    return path


def call(*arguments: object, env: dict[str, str] | None = None) -> Result:
    """The command in this process."""
    return CliRunner().invoke(main, [str(a) for a in arguments], env=env)


def stdout_json(*arguments: object) -> Any:
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def spawn(*arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, as a user runs it."""
    command = [sys.executable, "-m", "fusion_cli", *map(str, arguments)]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path, **env}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=120)
