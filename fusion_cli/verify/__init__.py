"""Does the fused model compute what the original does, and is it faster? Measured in ONNX Runtime."""

from fusion_cli.verify.feeds import Feeds, load_feeds, make_feeds
from fusion_cli.verify.numbers import largest_error, tolerance
from fusion_cli.verify.ops import check_ops
from fusion_cli.verify.signature import Signature, signature_of
from fusion_cli.verify.whole_model import Reference, reference_for, verify_model

__all__ = [
    "Feeds",
    "Reference",
    "Signature",
    "check_ops",
    "largest_error",
    "load_feeds",
    "make_feeds",
    "reference_for",
    "signature_of",
    "tolerance",
    "verify_model",
]
