"""Plan: a region of ONNX nodes becomes a shape program and a list of kernel stages."""

from fusion_cli.plan.compile import plan_region, supported_ops
from fusion_cli.plan.memo import Planner
from fusion_cli.planir.stages import Plan

__all__ = ["Plan", "Planner", "plan_region", "supported_ops"]
