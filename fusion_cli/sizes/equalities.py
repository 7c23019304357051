"""What is known to be equal among the symbols of one region or graph."""

from __future__ import annotations

from collections.abc import Iterable

from fusion_cli.sizes.algebra import ONE, SIGNED, UNKNOWN, Shape, Size, Term, cancelled, product, unknown
from fusion_cli.sizes.operations import substitute


class Sizes:
    """Sizes in which symbols stand for what they are known to equal."""

    def __init__(self) -> None:
        self._values: dict[str, Size] = {}
        self._given: set[str] = set()

    def norm(self, size: Size) -> Size:
        """The size with every symbol replaced by what it is known to equal."""
        return substitute(size, self._values) if self._values and size.factors else size

    def shape(self, shape: Iterable[Size]) -> Shape:
        return tuple(map(self.norm, shape))

    def equal(self, a: Size, b: Size) -> bool:
        return self.norm(a) == self.norm(b)

    def same_shape(self, a: Shape, b: Shape) -> bool:
        """Provably equal, leading ones aside."""
        return self.strip(a) == self.strip(b)

    def strip(self, shape: Shape) -> Shape:
        """The shape without its leading ones."""
        shape = self.shape(shape)
        count = next((i for i, s in enumerate(shape) if s != ONE), len(shape))
        return shape[count:]

    def learn(self, size: Size, claim: Size) -> None:
        """Take what shape inference says of a size that is made up or computed here; nothing else is believed, since
        shapes that a model declares of its outputs need not be right."""
        symbol = self.norm(size).symbol
        if symbol and symbol not in self._given:
            made_up = symbol.op != "broadcast" if isinstance(symbol, Term) else symbol.startswith(UNKNOWN)
            if made_up:
                self._define(symbol, self.norm(claim))

    def give(self, shape: Shape) -> None:
        """These are sizes of inputs: nothing is learned of them."""
        self._given.update(f for s in shape for f in s.factors if isinstance(f, Term))

    def equate(self, sizes: Iterable[Size]) -> None:
        """Take sizes to be equal, those aside that are 1."""
        names = {self.norm(size) for size in sizes} - {ONE}
        # A number is the best name.
        first, *others = sorted(names, key=lambda s: (s.known is None, str(s))) or [ONE]
        for other in others:
            if other.symbol is not None:
                self._define(other.symbol, first)

    def settle_reshape(self, shape: Shape, target: Shape) -> None:
        """Learn from a shape being read as `target`, which may hold -1: both have as many elements, so that one symbol
        that is left may be a product of others, or a multiple of what it is to be divided by."""
        known = [t for t in target if t.known != -1]
        total, rest = cancelled(product(self.shape(shape)), product(self.shape(known)))
        if len(known) < len(target):
            symbol = total.factors[0] if len(total.factors) == 1 else ""
            if _is_free(symbol) and rest not in (ONE, Size(0)):
                self._define(symbol, rest * unknown(f"({symbol}/{rest})"))
            return
        for size, other in ((total, rest), (rest, total)):
            if size.symbol and _is_free(size.symbol) and other.known is None:
                self._define(size.symbol, other)
                return

    def _define(self, symbol: str, size: Size) -> None:
        if not self._mentions(size, symbol):
            self._values[symbol] = size

    def _mentions(self, size: Size, symbol: str) -> bool:
        known = size.parts & self._values.keys()
        return symbol in size.parts or any(self._mentions(self._values[part], symbol) for part in known)


def _is_free(symbol: str) -> bool:
    """Whether a symbol stands for a size of its own, of which nothing is known."""
    return symbol != "" and not isinstance(symbol, Term) and not symbol.startswith(SIGNED)
