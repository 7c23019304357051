"""Keeping other libraries off the user's terminal."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out the libraries' warnings and remarks about single nodes: what matters of them is said in our words."""
    loggers = [logging.getLogger(n) for n in ("onnxscript", "onnx_ir", "onnx_shape_inference")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
