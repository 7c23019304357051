"""Does the fused model compute what the original does, and is it faster? Measured in ONNX Runtime."""

from fusion_cli.verify.codes import CODES, rollback
from fusion_cli.verify.feeds import Feeds, load_feeds, make_feeds
from fusion_cli.verify.model import Reference, reference_for, verify_model
from fusion_cli.verify.numbers import largest_error, tolerance
from fusion_cli.verify.ops import check_ops
from fusion_cli.verify.sessions import CPU, CUDA, CannotRun, Providers, Runner, check_providers, open_model, reason
from fusion_cli.verify.timing import Timing, alternate

__all__ = [
    "CODES",
    "CPU",
    "CUDA",
    "CannotRun",
    "Feeds",
    "Providers",
    "Reference",
    "Runner",
    "Timing",
    "alternate",
    "check_ops",
    "check_providers",
    "largest_error",
    "load_feeds",
    "make_feeds",
    "open_model",
    "reason",
    "reference_for",
    "rollback",
    "tolerance",
    "verify_model",
]
