"""Plans as text: nothing of a plan is left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest

from fusion_cli.plan import plan_region
from fusion_cli.planir.printer import show
from fusion_cli.planir.stages import Attention, Instr, Plan
from tests.helpers.cuda_attention_plans import attention
from tests.helpers.cuda_conv_plans import conv
from tests.helpers.cuda_product_plans import linear
from tests.helpers.golden_plans import GRAPHS, model_of
from tests.helpers.region_tools import whole

PLANS = {
    **{name: plan_region(whole(model_of(GRAPHS[name]))) for name in ("pointwise", "rotary", "linear_norm_between")},
    "linear": linear("float32", trans_b=True).plan,
    "attention": attention("float32", 64, prob="guard").plan,
    "conv": conv("float32").plan,
}


def changes(value: Any) -> Iterator[Any]:
    """The value with one thing changed, for each thing that can be."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield value + 1 if value + 1 != value else 0
    elif isinstance(value, str):
        yield f"{value}Other"
    elif value is None:
        yield (0, 1, 2)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from ((*value[:index], changed, *value[index + 1 :]) for changed in changes(item))
    else:
        for field in fields(value):
            if not _is_implied(value, field.name):
                for changed in changes(getattr(value, field.name)):
                    yield replace(value, **{field.name: changed})


def _is_implied(value: Any, field: str) -> bool:
    """Whether something else of the plan says the same, or nothing is said by it."""
    if isinstance(value, Instr):
        return (field == "dtype" and value.op == "load") or (field == "value" and value.value is None)
    if isinstance(value, Attention):
        return field == "stores"  # of one tensor; the number of the instruction has no meaning
    return isinstance(value, Plan) and field in ("inputs", "outputs", "host_inputs")


@pytest.mark.parametrize("name", PLANS)
def test_plans_that_differ_are_shown_differently(name: str) -> None:
    text = show(PLANS[name])
    for changed in changes(PLANS[name]):
        assert show(changed) != text, _difference(PLANS[name], changed)


def _difference(one: Any, other: Any) -> str:
    """What of a plan has no place in its text."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return next(_difference(a, b) for a, b in zip(one, other, strict=True) if a != b)
    if hasattr(one, "__dataclass_fields__"):
        name = next(f.name for f in fields(one) if getattr(one, f.name) != getattr(other, f.name))
        return f"{type(one).__name__}.{name}: {_difference(getattr(one, name), getattr(other, name))}"
    return f"{one} and {other} are shown alike"


def test_names_out_of_a_model_are_one_printable_line() -> None:
    plan = PLANS["conv"]
    tensors = (replace(plan.tensors[0], name="a\x1b[31m\nb"), *plan.tensors[1:])
    stages = (replace(plan.stages[0], nodes=("c\x9b\n" * 99,)),)
    text = show(replace(plan, tensors=tensors, stages=stages))
    assert "# a?[31m?b\n" in text
    assert all(c.isprintable() for c in text.replace("\n", ""))
    assert text.count("\n") == show(plan).count("\n")
    assert max(map(len, text.splitlines())) < 160
