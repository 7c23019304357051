"""Checks that need environments of their own, each made by nox: `nox` runs all, `nox -s 'onnxruntime(1.20.1)'` one."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import nox

nox.options.default_venv_backend = "uv|venv"
VERSIONS = (
    *("1.20.1", "1.21.1", "1.22.1", "1.23.2", "1.24.4", "1.25.1", "1.26.0"),
    *("1.27.0", "1.28.0", "1.29.0", "1.30.0", "1.31.1"),
)
"""The last release of each minor version of ONNX Runtime that is supported."""
TESTS = ("tests/runtime", "tests/emit/test_emit_cpu.py")


@nox.session
@nox.parametrize("version", VERSIONS, ids=VERSIONS)
def onnxruntime(session: nox.Session, version: str) -> None:
    """Kernels, bundles and a whole run with one version of ONNX Runtime, and the newest of all else."""
    session.install(".", f"onnxruntime=={version}", "pytest", "pytest-xdist", "hypothesis", "build", "hatchling")
    session.run("python", "-m", "pytest", "-q", *(session.posargs or TESTS))


@nox.session
def dockerfile(session: nox.Session) -> None:
    """The steps of examples/deploy/Dockerfile in clean environments, one for each stage: for where no engine runs."""
    root, place = Path(__file__).parent.resolve(), Path(session.create_tmp()).resolve()
    shutil.rmtree(place / "out", ignore_errors=True)
    session.install(".")
    session.chdir(place)
    make = "import pathlib, tests.helpers.cli_helpers as helpers; helpers.write_model(pathlib.Path('model.onnx'))"
    session.run("python", "-c", make, env={"PYTHONPATH": str(root)})
    moved = {"/src/$MODEL": place / "model.onnx", "/src": root, "/out": place / "out", "/model": place / "out"}
    moved["/serve.py"] = root / "examples" / "deploy" / "serve.py"
    text = (root / "examples" / "deploy" / "Dockerfile").read_text()
    for number, stage in enumerate(re.split(r"^FROM .*$", text, flags=re.MULTILINE)[1:]):
        environment = place / f"stage{number}"
        session.run("python", "-m", "venv", "--clear", str(environment))
        start = f"export OPTIONS=--force PATH={environment}/bin:$PATH; "
        steps = re.findall(r"^(?:RUN|CMD) (.*)$", stage, re.MULTILINE)
        lines = [shlex.join(json.loads(step)) if step.startswith("[") else step for step in steps]
        for command in (c for line in lines for c in line.split(" && ") if not c.startswith(("apt-get", "rm "))):
            here = re.sub("|".join(map(re.escape, moved)), lambda found: str(moved[found[0]]), command)
            session.run("sh", "-ec", start + here, external=True)


@nox.session
def zig(session: nox.Session) -> None:
    """Libraries for other machines; one is run if Debian's qemu-user-static, libc6-arm64-cross and
    libstdc++6-arm64-cross are there."""
    session.install(".[cpu,zig]", "pytest", "pip")
    wheel = Path(session.create_tmp()).resolve()
    where = ("--platform", "manylinux_2_28_aarch64", "--only-binary", ":all:", "--no-deps", "--target", str(wheel))
    session.run("python", "-m", "pip", "install", "--upgrade", *where, "onnxruntime")
    session.run("python", "-m", "pytest", "-q", "tests/build/test_zig.py", env={"FUSION_CLI_AARCH64": str(wheel)})


@nox.session
def inside(session: nox.Session) -> None:
    """The examples that need other tools: PyTorch, optimum, Olive, Triton's protocol."""
    session.install(".", "torch", "optimum-onnx[onnxruntime]", "olive-ai", "tritonclient[grpc]", "pytest", "hypothesis")
    session.run("python", "-m", "pytest", "-q", "tests/inside", "tests/deploy")


@nox.session
def cluster(session: nox.Session) -> None:
    """Several models on Dask's and Ray's workers."""
    session.install(".[cpu,dask,ray]", "pytest", "hypothesis")
    session.run("python", "-m", "pytest", "-q", "tests/cluster")
