"""The table `tests/language/overloads.txt`: graphs in ONNX text, one for each overload of the bundled rules.

One a line: the rule | "unfolded" if constants stay apart from what is computed from them, and algebra leaves what it
would write otherwise | operator sets | shapes of weights | the graph. `python -m tests.helpers.overloads RULE...`
prints lines for overloads, made by `rules test`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from fusion_cli.rulekit.components import Component, as_written, model_of
from fusion_cli.rulekit.realise import Concrete
from fusion_cli.rulekit.trial import Limits, Trial, rules_to_try

TABLE = Path(__file__).parents[1] / "language" / "overloads.txt"
_WEIGHT = re.compile(r"(\w+)=(\w+)\[([\d,]*)\]")


@dataclass(frozen=True)
class Held:
    """A graph of the table."""

    rule: str
    folds: bool
    model: onnx.ModelProto


def held() -> Iterator[Held]:
    """The graphs of the table, weights filled with random values."""
    for line in TABLE.read_text("utf-8").splitlines():
        rule, kind, opsets, weights, text = (part.strip() for part in line.split("|", 4))
        imports = ", ".join(f'"{d}": {v}' for d, _, v in (o.rpartition(":") for o in opsets.split()))
        model = onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{imports}]> {text}")
        rng = np.random.default_rng(0)
        for name, dtype, shape in _WEIGHT.findall(weights):
            values = rng.normal(size=[int(d) for d in shape.split(",")]) * 4
            model.graph.initializer.append(numpy_helper.from_array(values.astype(dtype), name))
        yield Held(rule, kind != "unfolded", model)


def _line(rule: str, graph: Concrete) -> str:
    model = model_of([Component("", graph, as_written(graph))])
    weights = []
    for tensor in [t for t in model.graph.initializer if int(np.prod(t.dims)) > 8]:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        weights.append(f"{tensor.name}={dtype}[{','.join(map(str, tensor.dims))}]")
        model.graph.initializer.remove(tensor)
    if not any(n.domain for n in model.graph.node):
        del model.graph.value_info[:]
    for node in model.graph.node:
        node.name = ""
    opsets = " ".join(f"{o.domain}:{o.version}" for o in model.opset_import)
    text = re.sub(r"\s+", " ", onnx.printer.to_text(model.graph)).replace('[""] ', "")
    return f"{rule} | {'unfolded' if graph.folds else ''} | {opsets} | {' '.join(weights)} | {text}"


def main(names: list[str]) -> None:
    rules, known = rules_to_try(names)
    for rule in rules:
        trial = Trial(rule, {r.name: r for r in known.idioms}, Limits(graphs=3))
        for pattern in rule.patterns:
            for graph in trial.graphs(pattern)[0][:1]:
                print(_line(rule.name, graph))


if __name__ == "__main__":
    main(sys.argv[1:])
