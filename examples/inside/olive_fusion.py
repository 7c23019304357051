"""An Olive pass: `"type": "KernelFusion"` in a workflow, with the package configuration beside this file.

olive run --config workflow.json --package-config examples/inside/olive_package.json
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from olive.model import ONNXModelHandler
from olive.model.utils import resolve_onnx_path
from olive.passes import Pass
from olive.passes.pass_config import PassConfigParam

import fusion_cli


class KernelFusion(Pass):  # type: ignore[misc]
    """Generated kernels for regions of the model, in a bundle that goes where the model goes."""

    @classmethod
    def _default_config(cls, accelerator_spec: Any) -> dict[str, PassConfigParam]:
        return {
            "targets": PassConfigParam(type_=list, default_value=["auto"], description="What to build kernels for."),
            "force": PassConfigParam(type_=bool, default_value=False, description="Keep kernels whatever their times."),
        }

    def _run_for_config(self, model: ONNXModelHandler, config: Any, output_model_path: str) -> ONNXModelHandler:
        output = Path(resolve_onnx_path(output_model_path, Path(model.model_path).name))
        output.parent.mkdir(parents=True, exist_ok=True)
        fusion_cli.optimize(model.model_path, output, targets=config.targets, force=config.force)
        # A folder is what Olive copies whole, with the bundle.
        return ONNXModelHandler(str(output.parent), onnx_file_name=output.name)
