"""Kernels from a user's own template: found, rendered, built, run; and what its mistakes look like."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import jinja2
import numpy as np
import onnx_ir as ir
import pytest

from fusion_cli.emit import emit, emit_registration
from fusion_cli.errors import TemplateError, Unsupported
from fusion_cli.types import FusedOp, Target, TensorSpec
from tests.helpers.emit_helpers import CPU, library, open_session, run
from tests.helpers.plan_builder import fused_op

TEMPLATE = """
// {{ op }}: {{ rule }}
#include "ort/op.h"
namespace {
constexpr fusion::Port kInputs[] = {{ "{{" }}{{ inputs[0].onnx_type }}, false{{ "}}" }};
constexpr fusion::Port kOutputs[] = {{ "{{" }}{{ outputs[0].onnx_type }}, false{{ "}}" }};
struct Kernel {
  Kernel(const fusion::Api&, const OrtKernelInfo*) {}
  void compute(fusion::Run& run) {
    const fusion::Ints dims = run.dims(0);
    const auto* x = static_cast<const {{ input_specs[0].type }}*>(run.input(0));
    auto* y = static_cast<{{ output_specs[0].type }}*>(run.output(0, dims));
    const float alpha = {{ literal(body[0].attributes.alpha, "float32") }};
    for (int64_t i = 0; i < fusion::count(dims); ++i) y[i] = x[i] < 0 ? alpha * x[i] : x[i];
  }
};
}
FUSION_OP({{ op }}, "{{ ep }}", kInputs, kOutputs, Kernel)
"""


def leaky(kernel: str = "leaky") -> FusedOp:
    node = ir.node("LeakyRelu", [ir.Value(name="x")], {"alpha": 0.3})
    spec = TensorSpec("x", "float32", ("N",))
    return fused_op("Leaky_1", None, [spec], [spec], kernel, [node])


def test_a_users_template_becomes_a_kernel(tmp_path: Path) -> None:
    (tmp_path / "leaky.cc.jinja").write_text(TEMPLATE)
    op = leaky()
    session = open_session(op, library([op], tmp_path / "lib", [tmp_path]).path)
    x = np.linspace(-2, 2, 9, dtype="f4")
    np.testing.assert_allclose(run(session, x)[0], np.where(x < 0, np.float32(0.3) * x, x))


def test_a_template_that_is_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "leaky.cc.jinja"
    for number, text in enumerate(("one", "another")):
        path.write_text(text)
        os.utime(path, (number, number))
        assert emit(leaky(), CPU, template_paths=[tmp_path]).text.endswith(text)


def test_templates_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leaky.cc.jinja").write_text("once")
    compiled = []
    compile = jinja2.Environment.compile
    monkeypatch.setattr(jinja2.Environment, "compile", lambda *a, **k: compiled.append(a[2]) or compile(*a, **k))
    for _ in range(2):
        emit(leaky(), CPU, template_paths=[tmp_path])
    assert sorted(compiled) == sorted(set(compiled)) != []


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("ok\n{% if %}\n", 2, "Expected an expression"),
        ("ok\nok\n{{ no_such_thing }}\n", 3, "no_such_thing"),
        ("{{ body[7].op_type }}", 1, "UndefinedError"),
        ("\n{{ inputs + 1 }}", 2, "TypeError"),
        ("{{ 1 / 0 }}", 1, "division"),
        ("{% include 'absent.inc' %}", None, "absent.inc"),
    ],
)
def test_template_mistakes_say_file_and_line(tmp_path: Path, text: str, line: int | None, message: str) -> None:
    (tmp_path / "leaky.cc.jinja").write_text(text)
    with pytest.raises(TemplateError, match=message) as caught:
        emit(leaky(), CPU, template_paths=[tmp_path])
    if line is not None:
        assert caught.value.where == f"{tmp_path / 'leaky.cc.jinja'}:{line}"


def test_a_missing_template_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"FUS505.*leaky\.cc\.jinja"):
        emit(leaky(), CPU, template_paths=[tmp_path])


def test_output_dims_are_numbers_and_sizes_of_inputs(tmp_path: Path) -> None:
    (tmp_path / "leaky.cc.jinja").write_text("{{ output_dims(0) }}")
    op = replace(
        leaky(),
        inputs=(TensorSpec("x", "float32", (4, "N")), TensorSpec("z", "float32", ("M", None))),
        outputs=(TensorSpec("y", "float32", ("M", 3, "N")),),
    )
    assert emit(op, CPU, template_paths=[tmp_path]).text == "fusion::Ints{run.dims(1)[0], 3, run.dims(0)[1]}"
    for unknown in ("2*N", None):
        changed = replace(op, outputs=(TensorSpec("y", "float32", ("M", unknown)),))
        with pytest.raises(Unsupported, match=r"FUS506.*axis 1") as caught:
            emit(changed, CPU, template_paths=[tmp_path])
        assert caught.value.found == ("one that is not known" if unknown is None else "'2*N'")


@pytest.mark.parametrize("kernel", ["../secret", "a/b", "", "x.y", "/etc/passwd"])
def test_a_kernel_name_is_no_path(kernel: str) -> None:
    with pytest.raises(TemplateError, match="not a template name"):
        emit(leaky(kernel), CPU)


def test_an_operator_name_must_be_an_identifier() -> None:
    for name in ('a"b', "1x", "a__b", "a b", "x;y"):
        spec = TensorSpec("x", "float32", ("N",))
        op = fused_op(name, None, [spec], [spec])
        with pytest.raises(TemplateError, match="name of an operator"):
            emit(op, CPU)
        with pytest.raises(TemplateError, match="name of an operator"):
            emit_registration(CPU, [op])


def test_targets_without_kernels_and_regions_without_plans_are_refused() -> None:
    with pytest.raises(Unsupported, match="portable"):
        emit(leaky(), Target("portable", "portable"))
    with pytest.raises(Unsupported, match="plan"):
        emit(leaky("auto"), CPU)
