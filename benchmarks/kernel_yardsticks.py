"""What the kernels of kernel_cases.py are held against: the same mathematics in float32, and what is known to be fast
(needs torch)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.kernel_cases import KernelCase

Inputs = Mapping[str, Tensor]
Results = tuple[Tensor, ...]


def bias_gelu(x: Inputs) -> Results:
    return (functional.gelu(x["x"] @ x["n_w"] + x["b_w"]),)


def bias_silu(x: Inputs) -> Results:
    return (functional.silu(x["x"] @ x["n_w"] + x["b_w"]),)


def bias_residual(x: Inputs) -> Results:
    return (x["x"] @ x["n_w"] + x["b_w"] + x["r"],)


def qkv(x: Inputs) -> Results:
    return tuple(x["x"] @ x[f"{o}_w"] + x[f"{o}b_w"] for o in "qkv")


def gated(x: Inputs) -> Results:
    return (functional.silu(x["x"] @ x["gate_w"]) * (x["x"] @ x["up_w"]),)


def attention_full(x: Inputs, *, causal: bool = False) -> Results:
    grouped = x["q"].shape[1] != x["k"].shape[1]
    mixed = functional.scaled_dot_product_attention(
        x["q"], x["k"], x["v"], x.get("m"), is_causal=causal, enable_gqa=grouped
    )
    return (mixed,)


attention_causal = partial(attention_full, causal=True)
attention_masked = attention_full


def residual_layer_norm(x: Inputs) -> Results:
    y = x["x"] + x["r"]
    return y, functional.layer_norm(y, y.shape[-1:], x["g_w"], x["b_w"], 1e-5)


def residual_rms_norm(x: Inputs) -> Results:
    y = x["x"] + x["r"]
    return y, functional.rms_norm(y, y.shape[-1:], x["g_w"], 1e-5)


def masked_softmax(x: Inputs) -> Results:
    return (torch.softmax(x["x"] + x["m"], -1),)


def silu_product(x: Inputs) -> Results:
    return (functional.silu(x["x"]) * x["u"],)


def bias_gelu_pass(x: Inputs) -> Results:
    return (functional.gelu(x["x"] + x["b_w"]),)


MATH: Mapping[str, Callable[[Inputs], Results]] = {
    "bias_gelu": bias_gelu,
    "bias_silu": bias_silu,
    "bias_residual": bias_residual,
    "qkv": qkv,
    "gated": gated,
    "attention_full": attention_full,
    "attention_causal": attention_causal,
    "attention_masked": attention_masked,
    "residual_layer_norm": residual_layer_norm,
    "residual_rms_norm": residual_rms_norm,
    "masked_softmax": masked_softmax,
    "silu_product": silu_product,
    "bias_gelu_pass": bias_gelu_pass,
}


def exact(case: KernelCase, inputs: Inputs) -> Results:
    """The results in float32, of the same inputs."""
    return MATH[case.math]({name: x.float() for name, x in inputs.items()})


def yardsticks(case: KernelCase, inputs: Inputs) -> Mapping[str, Callable[[], object]]:
    """What to be as fast as, by name: cuBLASLt's products without what follows them, PyTorch's attentions, a copy of as
    many bytes, a kernel that does next to nothing, and beside that a copy of the first operand: what is read cannot be
    there sooner."""
    device = next(iter(inputs.values())).device
    found: dict[str, Callable[[], object]] = {}
    if case.family in ("linear", "horizontal", "gated"):
        found |= _products(case, inputs)
    if case.family in ("attention", "decode"):
        found |= {"cuDNN": _sdpa(case, inputs, SDPBackend.CUDNN_ATTENTION)}
        found |= {"flash": _sdpa(case, inputs, SDPBackend.FLASH_ATTENTION)}
    if case.unit == "TB/s":
        source = torch.zeros(int(case.work(case.sizes)) // 2, dtype=torch.uint8, device=device)
        target = torch.zeros_like(source)
        found["copy"] = lambda: target.copy_(source)
    if case.unit == "us":
        one = torch.zeros(1, device=device)
        found["empty"] = lambda: one.add_(1)
        first = inputs[next(iter(case.inputs))]
        made = torch.empty_like(first)
        found["copy of the first"] = lambda: made.copy_(first)
    return found


def _products(case: KernelCase, inputs: Inputs) -> Mapping[str, Callable[[], object]]:
    """One product by all weights; after gate and up one pass that reads both, with a gate that costs the same."""
    weights = torch.cat([inputs[n] for n in case.inputs if n.endswith("_w") and inputs[n].dim() == 2], dim=1)
    if case.family == "gated":
        return {"cuBLASLt + glu": lambda: functional.glu(inputs["x"] @ weights)}
    return {"cuBLASLt": lambda: inputs["x"] @ weights}


def _sdpa(case: KernelCase, inputs: Inputs, backend: SDPBackend) -> Callable[[], object]:
    def call() -> object:
        with sdpa_kernel(backend):
            return MATH[case.math](inputs)

    return call
