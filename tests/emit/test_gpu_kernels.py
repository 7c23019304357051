"""The CUDA kernels on a GPU, through ONNX Runtime's CUDA provider, against numpy in fp64."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fusion_cli.kernels.wide import right_input
from fusion_cli.planir.stages import Linear
from fusion_cli.types import FusedOp
from tests.helpers.cuda_case import TOLERANCE, Case, assert_close, error_of, fused_op
from tests.helpers.cuda_plans import ATTENTIONS, all_cases, everything, sliced, vendors_too
from tests.helpers.plan_interpreter import interpret

pytestmark = pytest.mark.gpu

torch = pytest.importorskip("torch")
ort = pytest.importorskip("onnxruntime")
if not torch.cuda.is_available() or "CUDAExecutionProvider" not in ort.get_available_providers():
    pytest.skip("needs a GPU and ONNX Runtime's CUDA provider", allow_module_level=True)

from tests.helpers import gpu_runner  # noqa: E402 (imports torch)

REPLAYED = [sliced("float16"), vendors_too("float16"), vendors_too("float32")]
CASES = [*all_cases(), *(everything(d) for d in ("float32", "float16", "bfloat16")), *REPLAYED]


_BY_NAME = {
    "test_shapes_may_change_between_runs": "chain_float16",
    "test_failure_names_the_node": "linear_float16_nn",
}
"""The case of tests that have one."""


def _asked(request: pytest.FixtureRequest, cases: Sequence[Case]) -> list[FusedOp]:
    """The operators of those cases that this run has tests of."""
    here = [i for i in request.session.items if i.path == request.path]
    names = {_BY_NAME.get(i.originalname, "") for i in here}
    for item in here:
        parameters = getattr(item, "callspec", SimpleNamespace(params={})).params
        names |= {getattr(p, "name", p) for p in parameters.values()}
    return [fused_op(c) for c in cases if c.name in names]


@pytest.fixture(scope="module")
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gpu_runner.build_library(_asked(request, CASES), tmp_path_factory.mktemp("cuda")).path


_LAYERS = ("layer_float", "layer_bfloat", "layer_rotated")
PRODUCTS = [c for c in CASES if c.name.startswith(("linear", "batched", "chain", *_LAYERS))]
CONVOLUTIONS = [c for c in CASES if c.name.startswith("conv_last")]


@pytest.fixture(scope="module")
def own_products(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    asked = _asked(request, [*PRODUCTS, *CONVOLUTIONS])
    return gpu_runner.build_library(asked, tmp_path_factory.mktemp("own"), vendor=False).path


@pytest.mark.parametrize("case", [*PRODUCTS, *CONVOLUTIONS], ids=lambda c: c.name)
def test_product_without_the_vendors_libraries_agrees_with_fp64(case: Case, own_products: Path) -> None:
    _compare(case, False, own_products)


@pytest.mark.parametrize("graph", [False, True], ids=["plain", "graph"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_kernel_agrees_with_fp64(case: Case, graph: bool, library: Path) -> None:
    _compare(case, graph, library)


ATTENTION = [c for c in CASES if c.name.startswith(ATTENTIONS)]
MANY_TILES = {"b": 3, "h": 7, "g": 4, "q": 300, "k": 700, "s": 650}
"""More tiles of queries than a GPU has multiprocessors."""


@pytest.mark.parametrize("case", ATTENTION, ids=lambda c: c.name)
def test_attention_of_many_tiles_agrees_with_fp64(case: Case, library: Path) -> None:
    _compare(replace(case, sizes=({n: MANY_TILES[n] for n in case.sizes[0]},)), False, library)


BY_KEY = [
    c
    for c in ATTENTION
    if c.name.startswith("masked") and not any(n in c.name for n in ("by_query", "padded", "later", "windows"))
]
KEYS = tuple(
    {"b": b, "h": 3, "g": 2, "q": q, "k": k}
    for b, q, k in ((2, 300, 257), (13, 512, 512), (2, 130, 1000), (2, 300, 1300))
)
"""Two tiles of keys and a little more, several rounds of blocks, keys in no whole tiles, and more than are measured."""


@pytest.mark.parametrize("case", BY_KEY, ids=lambda c: c.name)
def test_attention_with_a_mask_by_key_agrees_with_fp64(case: Case, library: Path) -> None:
    _compare(replace(case, sizes=KEYS), False, library)


LONG = {"b": 2100, "d": 4104, "n": 2_200_000}
"""Enough for a GPU that threads of a pass have two vectors each; many rows, with some to spare in the last block."""


@pytest.mark.parametrize("name", ["scaled_float16", "scaled_float32", "integers", "layer_norm_float16_760"])
def test_long_passes_and_many_rows_agree_with_fp64(name: str, library: Path) -> None:
    case = next(c for c in CASES if c.name == name)
    sizes = {n: LONG[n] for n in case.sizes[0] if n in LONG} | {n: 3 for n in case.sizes[0] if n == "s"}
    _compare(replace(case, sizes=(sizes,)), False, library)


FULL = tuple({"b": 1, "s": rows, "k": depth, "n": 4104, "m": 264} for rows, depth in ((4500, 72), (130, 6008)))
"""Results, and right operands, that are more than the L2 cache keeps."""


@pytest.mark.parametrize("name", ["linear_abreast_float16", "linear_gated_bfloat16_t"])
def test_products_that_fill_the_cache_agree_with_fp64(name: str, library: Path) -> None:
    case = next(c for c in CASES if c.name == name)
    sizes = tuple({n: full[n] for n in case.sizes[0]} for full in FULL)
    _compare(replace(case, sizes=sizes), False, library)


MANY_HEADS = {"b": 44, "h": 20, "g": 1, "q": 40, "k": 75, "s": 40}
"""Three rounds of two blocks for each multiprocessor."""
ROUNDED = [c for c in ATTENTION if "float32" in c.name]


@pytest.mark.parametrize("case", ROUNDED, ids=lambda c: c.name)
def test_attention_in_tf32_agrees_with_fp64(case: Case, library: Path) -> None:
    more = tuple({n: many[n] for n in case.sizes[0]} for many in (MANY_TILES, MANY_HEADS))
    _compare(replace(case, sizes=(*case.sizes, *more)), False, library, tf32=True)


@pytest.mark.parametrize("case", ROUNDED[:1], ids=lambda c: c.name)
def test_a_session_without_tf32_gets_exact_products(case: Case, library: Path) -> None:
    op, inputs = fused_op(case), case.inputs(case.sizes[0], np.random.default_rng())
    want = interpret(case.plan, inputs)
    errors = [
        error_of(gpu_runner.Runner(op, library, inputs, [w.shape for w in want], tf32=tf32).run()[0], want[0])
        for tf32 in (False, True)
    ]
    assert errors[0] <= TOLERANCE["float32"] < errors[1]


ROUNDED_PRODUCTS = [c for c in PRODUCTS if "float32" in c.name]


@pytest.mark.parametrize("case", ROUNDED_PRODUCTS, ids=lambda c: c.name)
def test_product_in_tf32_agrees_with_fp64(case: Case, library: Path, own_products: Path) -> None:
    for chosen in (library, own_products):
        _compare(case, False, chosen, tf32=True)


# A tanh makes results smaller than what was rounded for them.
ROUNDED_CONVOLUTIONS = [c for c in CONVOLUTIONS if "float32" in c.name and "_t_" not in c.name]


@pytest.mark.parametrize("case", ROUNDED_CONVOLUTIONS, ids=lambda c: c.name)
def test_convolution_in_tf32_agrees_with_fp64(case: Case, library: Path) -> None:
    _compare(case, False, library, tf32=True)


@pytest.mark.parametrize("case", ROUNDED_PRODUCTS, ids=lambda c: c.name)
def test_product_in_tf32_has_the_same_bits_in_every_run(case: Case, own_products: Path) -> None:
    _same_bits(case, own_products)


SHARED = (
    {"m": 5, "b": 1, "s": 3, "n": 2056, "k": 4104},
    {"m": 1, "b": 3, "s": 5, "n": 520, "k": 8200},
    {"m": 7, "b": 1, "s": 8, "n": 2208, "k": 8200},
)
"""Few rows of sums that several blocks have parts of."""


@pytest.mark.parametrize("name", ["linear_float16_nn", "linear_bfloat16_nn", "linear_gated_float16"])
def test_shared_sums_of_few_rows_agree_with_fp64_and_have_the_same_bits(
    name: str, library: Path, own_products: Path
) -> None:
    case = next(c for c in PRODUCTS if c.name == name)
    case = replace(case, sizes=tuple({n: sizes[n] for n in case.sizes[0]} for sizes in SHARED))
    for chosen in (library, own_products):
        _compare(case, False, chosen)
        _same_bits(case, chosen)


MANY_ROWS = (
    {"b": 4, "s": 32, "m": 128, "n": 3072, "k": 768},
    {"b": 1, "s": 1024, "m": 1024, "n": 3080, "k": 260},
    {"b": 3, "s": 100, "m": 300, "n": 8200, "k": 100},
    {"b": 1, "s": 4001, "m": 4001, "n": 1032, "k": 64},
    {"b": 2, "s": 33, "m": 66, "n": 200, "k": 2052},
    {"b": 8, "s": 197, "m": 1576, "n": 768, "k": 768},
)


@pytest.mark.parametrize("case", ROUNDED_PRODUCTS, ids=lambda c: c.name)
def test_product_in_tf32_by_constants_agrees_with_fp64(case: Case, library: Path, own_products: Path) -> None:
    names = case.sizes[0]
    many = tuple({n: sizes.get(n, 24) for n in names} for sizes in MANY_ROWS)
    for sizes in ((*case.sizes, *many), many[:1]):
        changed = replace(case, sizes=sizes)
        for chosen in (library, own_products):
            _compare(changed, len(sizes) == 1, chosen, tf32=True, constants=_right_inputs(case))
    _same_bits(replace(case, sizes=many[:1]), own_products, _right_inputs(case))


def _right_inputs(case: Case) -> list[int]:
    """The operator's inputs that are right operands of products."""
    products = [i for i, stage in enumerate(case.plan.stages) if isinstance(stage, Linear)]
    return sorted({slot for i in products if (slot := right_input(case.plan, i)) is not None})


def _same_bits(case: Case, library: Path, constants: Collection[int] = ()) -> None:
    op, inputs = fused_op(case), case.inputs(case.sizes[0], np.random.default_rng())
    with np.errstate(all="ignore"):
        shapes = [w.shape for w in interpret(case.plan, inputs)]
    runner = gpu_runner.Runner(op, library, inputs, shapes, tf32=True, constants=constants)
    first = [a.tobytes() for a in runner.run()]
    assert all([a.tobytes() for a in runner.run()] == first for _ in range(20))


def _compare(case: Case, graph: bool, library: Path, tf32: bool = False, constants: Collection[int] = ()) -> None:
    op = fused_op(case)
    for sizes in case.sizes[:1] if graph else case.sizes:
        print(case.name, dict(sizes))  # the last one is where a kernel failed
        inputs = case.inputs(sizes, np.random.default_rng())
        with np.errstate(all="ignore"):
            want = interpret(case.plan, inputs)
        shapes = [w.shape for w in want]
        runner = gpu_runner.Runner(op, library, inputs, shapes, graph=graph, tf32=tf32, constants=constants)
        for _ in range(3 if graph else 1):
            for tensor in runner.outputs:
                tensor.zero_()
            got = runner.run()
        assert_close(op, got, want, sizes, tf32)


@pytest.mark.parametrize("case", REPLAYED, ids=lambda c: c.name)
def test_replayed_launches_compute_what_is_in_memory_then(case: Case, library: Path) -> None:
    """The same memory with other numbers: launched one by one, timed, as a graph is captured, and replayed."""
    op, rng = fused_op(case), np.random.default_rng()
    inputs = case.inputs(case.sizes[0], rng)
    with np.errstate(all="ignore"):
        runner = gpu_runner.Runner(op, library, inputs, [w.shape for w in interpret(case.plan, inputs)])
        for run in range(5):
            inputs = case.inputs(case.sizes[0], rng)
            runner.give(inputs)
            assert_close(op, runner.run(), interpret(case.plan, inputs), run)


@pytest.mark.parametrize("case", REPLAYED, ids=lambda c: c.name)
def test_a_caller_may_capture_a_run(case: Case, library: Path) -> None:
    """As PyTorch's graphs are: replayed without the session, with what is in memory then."""
    op, rng = fused_op(case), np.random.default_rng()
    inputs = case.inputs(case.sizes[0], rng)
    with np.errstate(all="ignore"):
        shapes = [w.shape for w in interpret(case.plan, inputs)]
        runner = gpu_runner.Runner(op, library, inputs, shapes, stream=torch.cuda.Stream())
        graph = runner.captured()
        for run in range(2):
            inputs = case.inputs(case.sizes[0], rng)
            runner.give(inputs)
            graph.call()
            assert_close(op, runner.results(), interpret(case.plan, inputs), run)


def test_shapes_may_change_between_runs(library: Path) -> None:
    """One session, several sizes: the workspace grows and shrinks with them."""
    case = next(c for c in CASES if c.name == "chain_float16")
    op = fused_op(case)
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(library))
    session = ort.InferenceSession(
        gpu_runner.model_of(op).SerializeToString(), options, providers=["CUDAExecutionProvider"]
    )
    for s in (3, 50, 1, 200):
        inputs = case.inputs({"b": 2, "s": s, "d": 96, "f": 200}, np.random.default_rng())
        (got,) = session.run(None, {spec.name: a for spec, a in zip(op.inputs, inputs, strict=True)})
        (want,) = interpret(case.plan, inputs)
        assert_close(op, [got], [want], s)


def test_failure_names_the_node(library: Path) -> None:
    case = next(c for c in CASES if c.name == "linear_float16_nn")
    op = fused_op(case)
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(library))
    session = ort.InferenceSession(
        gpu_runner.model_of(op).SerializeToString(), options, providers=["CUDAExecutionProvider"]
    )
    shapes = ((4, 8), (9, 4), (4,), (4, 4))  # inner dimensions 8 and 9
    feeds = {spec.name: np.zeros(shape, np.float16) for spec, shape in zip(op.inputs, shapes, strict=True)}
    with pytest.raises(Exception, match="the_node"):
        session.run(None, feeds)
