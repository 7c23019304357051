"""Checks that need environments of their own, each made by nox: `nox` runs all, `nox -s 'onnxruntime(1.20.1)'` one."""

from __future__ import annotations

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
