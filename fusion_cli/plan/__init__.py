"""Plan: a region of ONNX nodes becomes a shape program and a list of kernel stages."""

from fusion_cli.plan.ir import Plan
from fusion_cli.plan.memo import Planner
from fusion_cli.plan.region import plan_region, supported_ops

__all__ = ["Plan", "Planner", "plan_region", "supported_ops"]
