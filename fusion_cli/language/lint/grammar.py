"""What a function has to look like: the first place where it does not, in words that say how to mend it.

ONNX's parser refuses such text too, but says of most of it only which character it misses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx

from fusion_cli.language.lint.cursor import NAME, Cursor, Departure, shown
from fusion_cli.language.lint.tokens import HEAD_KEYS, CallText, FunctionText, Key, Token, nearest

_HEAD = '<domain: "fusion.rules", opset_import: ["": 23]>'
_ELEMENT_TYPES = {name.lower(): number for name, number in onnx.TensorProto.DataType.items()} | {
    "float32": int(onnx.TensorProto.FLOAT),
    "float64": int(onnx.TensorProto.DOUBLE),
}
_INFIX = frozenset({"+", "-", "*", "/", "@", "%", "//"})
_TYPE = re.compile(r"float|double|bool|string|tensor|seq|map|optional|(?:u?int|b?float|complex)\w*\d")
_OPERATOR = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_NUMBER = re.compile(r"[-+]?\d[\d.]*(?:[eE][-+]?\d+)?|[-+]?(?:inf|nan)", re.ASCII)
_Places = tuple[Token, Sequence[Token], Sequence[Token], Mapping[str, Token], Sequence[Token]]
"""Of a call: what stands beside the node in a CallText."""


class Reader(Cursor):
    """Reads the tokens of one function, `<head> Name <parameters> (inputs) => (outputs) { calls }`, and keeps where its
    parts stand."""

    def function(self) -> None:
        """Read all of it. Raises Departure where the text is another."""
        if self.next == "<":
            self.bracketed(self.take(), self._head_entry)
        self.rule = self.name("a rule's name")
        if self.next == "<":
            self.bracketed(self.take(), self._parameter)
        self.inputs = self._names("after the name of the rule")
        if self.next == "-" and self.after == ">":
            self.fail("inputs and outputs are joined by '=>', not '->'")
        self.expect("=>", "after the inputs")
        self.outputs = self._names("after '=>'")
        self._attributes()
        opened = self.expect("{", "before the calls")
        self.calls: list[_Places] = []
        while self.next != "}":
            if self.at >= len(self.tokens):
                raise Departure("FUS001", opened, "this '{' is not closed by '}'")
            self.calls.append(self._call())
        self.take()

    def text(self, proto: onnx.FunctionProto, keys: Sequence[Key]) -> FunctionText:
        """What was read beside what ONNX's parser made of it."""
        calls = [CallText(node, *places) for node, places in zip(proto.node, self.calls, strict=True)]
        return FunctionText(keys, proto, self.rule, self.inputs, self.outputs, calls)

    def _head_entry(self) -> None:
        if self.next not in HEAD_KEYS:
            hint = nearest(self.next, HEAD_KEYS)
            self.fail(f"a rule's head is {_HEAD}: {shown(self.next)} is no part of it{hint}")
        key = self.take().text
        self.expect(":", f"after '{key}'")
        if key != "opset_import":
            self.take()
            return
        self.bracketed(self.expect("[", "before the operator sets"), self._opset)

    def _opset(self) -> None:
        if not self.next.startswith('"'):
            self.fail(f'expected a domain in quotes, such as "": 23, found {shown(self.next)}')
        self.take()
        self.expect(":", "between a domain and its version")
        if not re.fullmatch(r"\d+", self.next):
            self.fail(f"an operator set's version is a number without quotes, not {shown(self.next)}")
        self.take()

    def _parameter(self) -> None:
        self.name("a parameter")
        while self.next not in (",", ">", ""):
            self.take()

    # ---- a call

    def _call(self) -> _Places:
        if self.next == "[":
            self.bracketed(self.take(), lambda: self.name("a label"))
        start = self.at
        if self.next == "/":
            self.fail("a comment starts with '#', and names hold letters, digits and underscores only")
        outputs = self.listed("=", lambda: self.name("a result"))
        self._no_semicolon()
        if self.next != "=":
            found = shown(self.next)
            self.at = start
            self.fail(f"expected a call, `result = Operator (inputs)`, but no '=' follows ({found} does)")
        equals = self.take()
        if _NUMBER.fullmatch(self.next):
            self.fail(f"a number of the rule is written Constant <value_float = {float_of(self.next)}> ()")
        if not _OPERATOR.fullmatch(self.next):
            self.fail(f"expected an operator after '=', found {shown(self.next)}")
        if self.tokens[self.at].line > equals.line:
            raise Departure("FUS001", equals, "expected an operator after '='")
        operator = self.take()
        names = self._attributes()
        if self.next == "[":
            self.fail(f"attributes stand in angle brackets: {operator.text} <name = value> (inputs)")
        if self.next in _INFIX:
            self.fail(f"an operator is called by its name, such as Mul (a, b): {shown(self.next)} is none")
        if self.next != "(":
            raise Departure("FUS001", operator, f"expected the inputs in parentheses after '{operator.text}'")
        inputs = self._names("after the operator")
        names += self._attributes()
        self._no_semicolon()
        first = {t.text: t for t in reversed(names)}
        return operator, outputs, inputs, first, [t for t in names if first[t.text] is not t]

    def _no_semicolon(self) -> None:
        if self.next == ";":
            self.fail("a call ends with its line, without ';'")

    def _names(self, where: str) -> list[Token]:
        """Names in parentheses; an omitted one is an empty token."""
        return self.bracketed(self.expect("(", where), self._operand, self._not_an_operand)

    def _operand(self) -> Token:
        """A name, or nothing for an omitted one."""
        if self.next == ")" and self.tokens[self.at - 1].text == ",":
            self.fail("expected an operand after ','")
        if self.next == ",":
            return replace(self.tokens[self.at], text="")
        if self.next == '""':
            return self.take()
        if _NUMBER.fullmatch(self.next):
            line = f"c = Constant <value_float = {float_of(self.next)}> ()"
            self.fail(f"an operand is a name: write `{line}` in a line before, and c here")
        return self.name("an operand")

    def _not_an_operand(self) -> None:
        """What is often written where a list of names goes on."""
        if self.next == "(":
            self.fail("no call within a call: give its result a name in a line before")
        if self.next == "=":
            self.fail("attributes stand in angle brackets before the inputs: Softmax <axis = -1> (x)")
        before = self.tokens[self.at - 1].text
        if self.next == "[" or (NAME.fullmatch(self.next) and _TYPE.fullmatch(before)):
            self.at -= 1
            message = "types and shapes are not matched: write the name alone, and a condition such as"
            self.fail(f"{message} `# where: dtype(x) == float32 and rank(x) == 2` before the rule", "FUS018")

    # ---- attributes

    def _attributes(self) -> list[Token]:
        return self.bracketed(self.take(), self._attribute) if self.next == "<" else []

    def _attribute(self) -> Token:
        name = self.name("an attribute")
        if self.next == ":" and (_NUMBER.fullmatch(self.after) or self.after[:1] in ("[", "@", '"')):
            self.fail("an attribute is written with '=': <axis = -1>")
        if self.next == ":":
            self.take()
            self.name("a type")
        self.expect("=", "between an attribute and its value")
        self._value()
        if self.next in _INFIX:
            self.fail("a number is written out, such as 0.125")
        return name

    def _value(self) -> None:
        if self.next == "(":
            self.fail("a list is written in square brackets: [0, 2, 1]")
        if self.next == ".":
            self.fail(f"a number starts with a digit: 0.{self.after}")
        if self.next == "@":
            self.take()
            self.name("a parameter")
        elif self.next == "[":
            self.skip_bracketed()
        elif self.next.startswith('"') or _NUMBER.fullmatch(self.next):
            self.take()
        elif self.next in ("-", "+") and _NUMBER.fullmatch(self.after):
            self.at += 2
        elif NAME.fullmatch(self.next):
            self._typed_value()
        else:
            self.fail(f"expected a value, found {shown(self.next)}")

    def _typed_value(self) -> None:
        """A tensor, `float[1] {0.5}`; nothing else starts with a word."""
        word = self.take().text
        if self.next == "[":
            self.skip_bracketed()
        if self.next == "{":
            self.skip_bracketed()
            return
        if self.next == "(":
            self.fail("bodies of control flow are not matched: a rule stays within one graph")
        self.at -= 1
        if word.lower() in ("true", "false"):
            self.fail(f"a truth value is written {int(word.lower() == 'true')}")
        if (number := _ELEMENT_TYPES.get(word.lower())) is not None:
            self.fail(f"an element type is written as ONNX's number for it: {word} is {number}")
        self.fail(f"'{word}' is no value: a text stands in quotes, a parameter of the rule is read as @{word}")


def float_of(number: str) -> str:
    """The number as ONNX's text has it where a float is meant."""
    return number if re.search(r"[.eEn]", number) else f"{number}.0"
