"""What ONNX's own checker says against a model."""

from __future__ import annotations

from pathlib import Path

import onnx

from fusion_cli.errors import first_line


def fault(path: Path) -> str:
    """The first line of it; "" for nothing. That shapes contradict each other is no fault here: once constants are
    folded, shape inference sees through what it did not before, and finds what a model says of its outputs to be
    wrong."""
    try:
        onnx.checker.check_model(path)
    except onnx.checker.ValidationError as e:
        return first_line(e)
    return ""
