"""The stage list a region is compiled to: tensors, host-side shape arithmetic, and kernels to run in order.

Everything here is plain frozen data, free of `onnx_ir` objects, so that two equal regions give equal plans and the
code generators need know nothing of graphs.

Shapes are known only at run time. The generated operator first runs the plan's `shape_program`, a straight line of
operations on short integer vectors; each tensor names the shape value that holds its dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from fusion_cli.planir.attention_sort import PLAIN, AttentionKind
from fusion_cli.planir.host_op import ShapeOp

Size = TypeVar("Size")
Const = int | float | bool
MOST_OPERANDS = 24
"""That a kernel reads: of more the parameters would not fit."""


@dataclass(frozen=True)
class Tensor:
    """A device-memory array of the operator. `role` input/output with `slot`, or temp (slot = workspace buffer).

    `shape` is what is known at compile time, one entry per dimension: a number, or a symbol (equal symbols are equal
    sizes). The rank is always known. `dims` is the shape value with the run-time dimensions.
    An "alias" tensor is another name (and shape) for the memory of tensor `slot`, from Reshape and its like; of a view
    it only splits axes.
    A "view" tensor is part of tensor `slot`: along each axis every `steps`-th element from `starts` on (shape values).
    Pointwise stages may write to views.
    """

    role: Literal["input", "output", "temp", "alias", "view"]
    slot: int
    dtype: str
    shape: tuple[int | str, ...]
    dims: int
    name: str = ""
    starts: int = -1
    steps: int = -1

    @property
    def is_own(self) -> bool:
        """Whether it is memory of its own, not another tensor's."""
        return self.role not in ("alias", "view")


@dataclass(frozen=True)
class Operand:
    """A tensor as a kernel reads it: transposed by `perm` if given, then numpy-broadcast to the iteration space. With
    `rows`, an operand that has an integer for each row of a rowwise stage, it is a table of whose rows that one is
    read: from the end if negative, the first or the last where there is none."""

    tensor: int
    perm: tuple[int, ...] | None = None
    rows: int | None = None


@dataclass(frozen=True)
class Instr:
    """One scalar operation, in SSA form: `args` are indices of earlier instructions of the same program.

    op "load": element of operand `value` of the stage at this point of the iteration space.
    op "acc": the stage's own result at this point (product of a linear stage, score or probability of attention,
    convolution output).
    op "const": the literal `value`.
    op "reduce_sum" | "reduce_mean" | "reduce_max" | "reduce_min" | "reduce_prod": of args[0] over the last axis
    (rowwise stages only); the result is one number per row, usable by later instructions as if broadcast.
    op "index": the position along axis `value` (negative, from the end) of the iteration space, as int64.
    Every other op is an ONNX elementwise operator by its name ("Add", "Erf", "Where", "Cast", ...).
    `dtype` is the ONNX element type of the result in the model. float16/bfloat16/float32 are computed in fp32; only an
    explicit "Cast" to a narrower float rounds.
    """

    op: str
    args: tuple[int, ...]
    dtype: str
    value: Const | None = None


@dataclass(frozen=True)
class Store:
    """Write instruction `instr`'s value to tensor `tensor` (whose shape is the iteration space's, up to 1-sized
    leading dimensions; for a per-row number of a rowwise stage, the last dimension is 1 or absent)."""

    tensor: int
    instr: int


@dataclass(frozen=True)
class _Kernel:
    operands: tuple[Operand, ...]
    program: tuple[Instr, ...]
    stores: tuple[Store, ...]
    dims: int
    """Shape value: the iteration space."""
    nodes: tuple[str, ...] = ()
    """Original node names, for comments in generated source."""

    @property
    def tensors(self) -> tuple[int, ...]:
        """What it reads and writes, each once."""
        return tuple(dict.fromkeys([*(o.tensor for o in self.operands), *(s.tensor for s in self.stores)]))


@dataclass(frozen=True)
class Pointwise(_Kernel):
    """Every element of the iteration space on its own. Also copies: a transpose is a load through a permuted view."""


@dataclass(frozen=True)
class Rowwise(_Kernel):
    """Elementwise operations and reductions over the last axis of the iteration space."""


@dataclass(frozen=True)
class Linear(_Kernel):
    """acc = alpha * A @ B over the last two axes, leading axes broadcast as numpy matmul does; the program is the
    epilogue. `trans_a`/`trans_b` (Gemm): the operand is stored transposed in its last two axes. A and B are operands
    `a` and `b`; the iteration space is the product's shape. A vector A or B (rank 1) does not occur."""

    a: int = 0
    b: int = 1
    trans_a: bool = False
    trans_b: bool = False
    alpha: float = 1.0


@dataclass(frozen=True)
class Attention(_Kernel):
    """out = P @ V, P = prob(softmax(score(Q @ K^T))) over the last axis of the scores, never stored.

    Operands `q` [..., Sq, D], `k` [..., Sk, D], `v` [..., Sk, Dv], leading axes broadcast
    (grouped query heads: rank 5, with an axis of 1 in k and v).
    `program` is the score program: "acc" is scale * (q . k) and loads broadcast to [..., Sq, Sk]; its value is
    instruction `score`. Instruction `sink` (-1: none), one number per row, is one score more, of a key without value.
    `prob_program` maps a probability ("acc") likewise; its value is `prob`; empty means identity.
    A row whose scores are all -inf has NaN for probabilities, where `kind` says "zero_empty" (no `prob_program` then)
    zeros. `kind` is otherwise what the programs already say.
    The iteration space `dims` is the output's [..., Sq, Dv]; `stores` has one entry whose `instr` is ignored.
    `out_perm`: the stored tensor is the output transposed by this permutation (heads merged back without a copy).
    """

    q: int = 0
    k: int = 1
    v: int = 2
    scale: float = 1.0
    score: int = 0
    prob_program: tuple[Instr, ...] = ()
    prob: int = 0
    kind: AttentionKind = PLAIN
    out_perm: tuple[int, ...] | None = None
    sink: int = -1


@dataclass(frozen=True)
class Conv(_Kernel):
    """acc = convolution of operand `x` [N,C,...] with operand `w` [M,C/group,...] plus operand `bias` [M] if not -1.

    `channels_last`: x is [N,...,C], and so is the iteration space [N,...,M]; w is as ever, and there is no `bias`.
    """

    x: int = 0
    w: int = 1
    bias: int = -1
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    group: int = 1
    auto_pad: str = "NOTSET"
    channels_last: bool = False

    def image(self, shape: Sequence[Size]) -> tuple[Size, ...]:
        """The shape [N,C,...] of what lies as `x` and the result do."""
        return (shape[0], shape[-1], *shape[1:-1]) if self.channels_last else tuple(shape)


@dataclass(frozen=True)
class Pool(_Kernel):
    """acc = the largest element, or with `mean` the mean, of each channel of a window that moves over operand `x`
    [N,...,C]; the iteration space is likewise. What lies outside the image is left out, or with `counts_pads` part of
    the mean, as zeros. NaN within a window is what comes of it."""

    x: int = 0
    kernel: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    mean: bool = False
    counts_pads: bool = False


@dataclass(frozen=True)
class Moments(_Kernel):
    """acc [2, N, C] = the mean, and 1 / sqrt(variance + epsilon), of each group of neighbouring channels over all
    positions of operand `x` [N,...,C], for each channel of the group."""

    x: int = 0
    groups: int = 1
    epsilon: float = 0.0


Stage = Pointwise | Rowwise | Linear | Attention | Conv | Pool | Moments


@dataclass(frozen=True)
class Group:
    """Stages, by position, that one kernel could run together; `kind` says as what:
    "products"      of one left operand (q, k, v; gate and up, where an epilogue reads another's result), of any widths
    "rows"          a product, and row statistics or a norm of its result
    "prologue"      what computes q or k of an attention element by element (a rotary embedding), and the attention
    "convolutions"  a chain, each of the result of the one before it
    "elements"      neighbours that are computed element by element, none from what another makes (rotary embeddings)
    """

    kind: Literal["products", "rows", "prologue", "convolutions", "elements"]
    stages: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """A region as kernels. `buffers` counts workspace buffers, each as large as the largest of its tensors; a temp
    tensor's slot says which one it lives in. `host_inputs`: operator inputs on the host: shape tensors,
    which are read there, and positions, whose sizes alone matter."""

    tensors: tuple[Tensor, ...]
    shape_program: tuple[ShapeOp, ...]
    stages: tuple[Stage, ...]
    inputs: tuple[int, ...]
    """Tensor index per operator input (-1: read on the host, if at all)."""
    outputs: tuple[int, ...]
    buffers: int
    host_inputs: tuple[int, ...] = ()
    groups: tuple[Group, ...] = ()

    def viewed(self, operand: Operand) -> tuple[int | str, ...]:
        """The compile-time shape of what a kernel reads by an operand: the tensor's, transposed; a row of a table."""
        shape = self.tensors[operand.tensor].shape[operand.rows is not None :]
        return shape if operand.perm is None else tuple(shape[p] for p in operand.perm)

    def root(self, tensor: int) -> int:
        """The tensor in whose memory this one lies."""
        return root_of(self.tensors, tensor)

    def memory(self, tensor: int) -> tuple[str, int]:
        """What tells the memory of two tensors apart: equal where they lie in one array or workspace buffer."""
        root = self.tensors[self.root(tensor)]
        return root.role, root.slot


def root_of(tensors: Sequence[Tensor], tensor: int) -> int:
    """The tensor in whose memory `tensor` lies."""
    while not tensors[tensor].is_own:
        tensor = tensors[tensor].slot
    return tensor


def own_operands(stage: Stage) -> tuple[int, ...]:
    """The operands that a stage's own result ("acc") is made of."""
    match stage:
        case Linear():
            return stage.a, stage.b
        case Conv():
            return (stage.x, stage.w) if stage.bias == -1 else (stage.x, stage.w, stage.bias)
        case Attention():
            return stage.q, stage.k, stage.v
        case Pool() | Moments():
            return (stage.x,)
    return ()
