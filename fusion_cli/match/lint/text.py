"""Reading a rule file: its header lines and functions, and what keeps parts of it from being read.

ONNX's parser passes over whatever follows a function, and stops at the first fault. So the file is cut into functions
first, and each is parsed by itself: one that does not parse hides no fault of the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import onnx
import onnx.parser

from fusion_cli.errors import RuleError
from fusion_cli.match.lint.layout import FunctionText, lay_out
from fusion_cli.match.lint.tokens import Key, Token, parts_of

KEYS = ("summary", "opt-level", "kernel", "where", "unless", "counted", "match")
"""What a header line can say."""
Severity = Literal["error", "warning", "note"]
Kind = Literal["idiom", "fusion"]

_PREFIX = '<ir_version: 8, opset_import: ["": 23]> none () => () {}\n'
"""Makes a model of a function: `parse_function` says nothing of an unknown word after it."""
_POSITION = re.compile(r"line: (\d+) column: (\d+)")


@dataclass(frozen=True)
class Finding:
    """Something wrong at a place in a rule file. An "error" keeps the rules from being used, a "warning" does not, and
    a "note" is no fault."""

    path: Path
    line: int
    column: int
    code: str
    message: str
    source: str
    severity: Severity = "error"

    def __str__(self) -> str:
        caret = "".join("\t" if c == "\t" else " " for c in self.source[: self.column - 1]) + "^"
        head = f"{self.path}:{self.line}:{self.column}: {self.message} [{self.code}]"
        return f"{head}\n    {self.source}\n    {caret}"


@dataclass(frozen=True, eq=False)
class RuleFile:
    """What one file holds, and what kept parts of it from being read."""

    path: Path
    kind: Kind
    text: str
    functions: tuple[FunctionText, ...]
    findings: tuple[Finding, ...]

    def finding(
        self, code: str, place: Token | Key, message: str, severity: Severity = "error", offset: int = 0
    ) -> Finding:
        """A finding `offset` characters behind a place of this file."""
        return _finding(self.path, self.text, code, place.line, place.column + offset, message, severity)

    def keys_for(self, function: FunctionText) -> list[Key]:
        """The header lines that hold for a function. Those of the first hold for all, but for conditions."""
        shared = [k for k in self.functions[0].keys if k.name != "where"] if function is not self.functions[0] else []
        own = {k.name for k in function.keys}
        return [k for k in shared if k.name not in own] + list(function.keys)


def rule_folder(path: Path) -> Path:
    """The folder that `--rule-path` names for a rule file, where its templates lie too."""
    return path.parent.parent if path.parent.name in ("fusions", "idioms") else path.parent


def read_rule_file(path: Path, kind: Kind) -> RuleFile:
    """The file's functions. Raises RuleError if it cannot be read; faults of its text become findings."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise RuleError(f"cannot be read: {e}", where=str(path)) from e
    findings: list[Finding] = []
    functions: list[FunctionText] = []
    keys: list[Key] = []

    def found(code: str, place: Token | Key, message: str) -> None:
        findings.append(_finding(path, text, code, place.line, place.column, message))

    for part in parts_of(text):
        if isinstance(part, Key):
            keys.append(part)
        elif part[0].text != "<" and "=>" not in [t.text for t in part]:
            found("FUS002", part[0], "text outside of a function, which ONNX's parser would pass over")
        else:
            if part[0].text != "<":
                found("FUS017", part[0], 'a function starts with <domain: "fusion.rules", opset_import: ["": 23]>')
            for key in keys:
                if key.line > part[0].line and key.name in KEYS:
                    found("FUS002", key, f"a line '# {key.name}:' stands before the function")
            function = _function(part, tuple(k for k in keys if k.line < part[0].line), text, found)
            functions += [function] if function is not None else []
            keys = []
    if keys and functions:
        found("FUS002", keys[0], f"no function follows this line '# {keys[0].name}:'")
    if not functions and not findings:
        findings.append(_finding(path, text, "FUS006", 1, 1, "the file holds no rule"))
    return RuleFile(path, kind, text, tuple(functions), tuple(findings))


def _finding(
    path: Path, text: str, code: str, line: int, column: int, message: str, severity: Severity = "error"
) -> Finding:
    lines = text.splitlines() or [""]
    return Finding(path, line, column, code, message, lines[min(line, len(lines)) - 1], severity)


# ---- one function


def _function(
    tokens: list[Token], keys: tuple[Key, ...], text: str, found: Callable[[str, Token, str], None]
) -> FunctionText | None:
    clean = True
    for code, token, message in _lexical(tokens):
        found(code, token, message)
        clean = False
    try:
        model = onnx.parser.parse_model(_PREFIX + _only(tokens, text))
    except onnx.parser.ParseError as e:
        if clean:
            found("FUS001", *_syntax(str(e), tokens))
        return None
    if not model.functions:
        found("FUS001", tokens[0], "this is no function")
        return None
    return lay_out(model.functions[0], tokens, keys) if clean else None


def _only(tokens: Sequence[Token], text: str) -> str:
    """The text from the first token to the last, everything else blank: positions stay what they are."""
    first, last = tokens[0], tokens[-1]
    lines = text.splitlines()[: last.line]
    lines[-1] = lines[-1][: last.column - 1 + len(last.text)]
    lines[first.line - 1] = " " * (first.column - 1) + lines[first.line - 1][first.column - 1 :]
    return "\n".join([""] * (first.line - 1) + lines[first.line - 1 :])


def _lexical(tokens: Sequence[Token]) -> Iterator[tuple[str, Token, str]]:
    """What the parser refuses with words that say nothing of the cause."""
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        word = token.text
        if word == "//":
            yield "FUS003", token, "a comment starts with '#', not '//'"
        elif word in ("float16", "bfloat16") and after is not None and after.text in "{[":
            yield "FUS005", token, f"there are no {word} literals; write 'float': the number counts, not its type"
        elif ((word[0].isalpha() or word[0] == "_") and "-" in word) or (
            "." in word and (word[0].isalpha() or word[0] == "_") and not _is_operator(before, after)
        ):
            yield "FUS004", token, f"'{word}' is not a name: letters, digits and underscores only"


def _is_operator(before: Token | None, after: Token | None) -> bool:
    return before is not None and before.text == "=" and after is not None and after.text in "(<"


def _syntax(message: str, tokens: Sequence[Token]) -> tuple[Token, str]:
    position = _POSITION.search(message)
    reason = message.replace("\\n", "\n").splitlines()[-1].rstrip("'\"")
    if position is None:
        return tokens[0], reason
    return Token("", int(position[1]) - 1, int(position[2])), reason
