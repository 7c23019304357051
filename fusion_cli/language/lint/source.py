"""Reading a rule file: its header lines and functions, and what keeps parts of it from being read.

ONNX's parser passes over whatever follows a function, and stops at the first fault. So the file is cut into functions
first, and each is parsed by itself: one that does not parse hides no fault of the others.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

import onnx
import onnx.parser

from fusion_cli.language.lint.cursor import Departure
from fusion_cli.language.lint.grammar import Reader
from fusion_cli.language.lint.readings import misread, readings
from fusion_cli.language.lint.tokens import KEYS, OF_CALLS, Fault, FunctionText, Key, Token, parts_of

Severity = Literal["error", "warning", "note"]
Kind = Literal["idiom", "fusion"]

USUAL_OPSET = 23
HEAD = f'<domain: "fusion.rules", opset_import: ["": {USUAL_OPSET}, "pattern": 1, "com.microsoft": 1]>'
"""The head of a function that is written without one."""
_PREFIX = '<ir_version: 8, opset_import: ["": 23]> none () => () {}'
"""Makes a model of a function: `parse_function` says nothing of an unknown word after it."""
_SHOWN = 200
"""How much of a line is shown before and after a place."""
_START = Token("", 1, 1)
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
        head = f"{self.path}:{self.line}:{self.column}: {self.message} [{self.code}]"
        source = self.source.replace("\t", " ")
        start = max(self.column - _SHOWN, 0)
        return f"{head}\n    {source[start : start + 2 * _SHOWN]}\n    {' ' * (self.column - 1 - start)}^"


@dataclass(frozen=True, eq=False)
class RuleFile:
    """What one file holds, and what kept parts of it from being read."""

    path: Path
    kind: Kind
    text: str
    functions: Sequence[FunctionText]
    faults: Sequence[Fault]

    @cached_property
    def by_name(self) -> Mapping[str, Sequence[FunctionText]]:
        """The overloads of each rule."""
        found: dict[str, list[FunctionText]] = defaultdict(list)
        for function in self.functions:
            found[function.name.text].append(function)
        return found

    def finding(
        self, code: str, place: Token | Key, message: str, severity: Severity = "error", offset: int = 0
    ) -> Finding:
        """A finding `offset` characters behind a place of this file."""
        lines = self.text.split("\n")
        source = lines[min(place.line, len(lines)) - 1]
        return Finding(self.path, place.line, place.column + offset, code, message, source, severity)

    def keys_for(self, function: FunctionText) -> list[Key]:
        """The header lines that hold for a function: its own, and those of the first that speak of no calls."""
        shared = [] if function is self.functions[0] else [k for k in self.functions[0].keys if k.name not in OF_CALLS]
        own = {k.name for k in function.keys}
        return [k for k in shared if k.name not in own] + list(function.keys)


def rule_folder(path: Path) -> Path:
    """The folder that `--rule-path` names for a rule file, where its templates lie too."""
    return path.parent.parent if path.parent.name in ("fusions", "idioms") else path.parent


def read_rule_file(path: Path, kind: Kind) -> RuleFile:
    """The file's functions, and the faults of its text, one of which may be that it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as e:
        return RuleFile(path, kind, "", (), [("FUS007", _START, f"the file cannot be read: {e.strerror}")])
    except UnicodeDecodeError as e:
        text = e.object[: e.start].decode("utf-8-sig")
        lines = text.split("\n")
        message = f"the byte 0x{e.object[e.start]:02x} here is not UTF-8: save the file as UTF-8 text"
        return RuleFile(path, kind, text, (), [("FUS007", Token("", len(lines), len(lines[-1]) + 1), message)])
    return _parsed(path, kind, text)


@lru_cache(maxsize=512)
def _parsed(path: Path, kind: Kind, text: str) -> RuleFile:
    """Once for each text: a process reads the bundled rules anew for every model."""
    faults: list[Fault] = []
    functions: list[FunctionText] = []
    keys: list[Key] = []
    for part in parts_of(text):
        if isinstance(part, Key):
            keys.append(part)
        elif part[0].text != "<" and "=>" not in [t.text for t in part]:
            faults.append(("FUS002", part[0], "text outside of a function, which ONNX's parser would pass over"))
        else:
            for key in keys:
                if key.line > part[0].line and key.name in KEYS:
                    faults.append(("FUS002", key, f"a line '# {key.name}:' stands before the function"))
            functions += _overloads(part, [k for k in keys if k.line < part[0].line], text, faults)
            keys = []
    if keys and functions:
        faults.append(("FUS002", keys[0], f"no function follows this line '# {keys[0].name}:'"))
    if not functions and not faults:
        faults.append(("FUS006", _START, "the file holds no rule"))
    return RuleFile(path, kind, text, functions, faults)


# ---- one function


def _overloads(tokens: list[Token], keys: Sequence[Key], text: str, faults: list[Fault]) -> list[FunctionText]:
    """The overloads that a function stands for; itself where its header does not say which. What keeps it from being
    read is added to `faults`."""
    if wrong_words := list(_lexical(tokens)):
        faults += wrong_words
        return []
    reader = Reader(tokens)
    try:
        reader.function()
        head = "" if tokens[0].text == "<" else HEAD
        model = onnx.parser.parse_model(f"{_PREFIX} {head}\n{_only(tokens, text)}")
    except Departure as departure:
        faults.append(departure.fault)
        return []
    except onnx.parser.ParseError as e:
        faults.append(("FUS001", *_syntax(str(e), tokens)))
        return []
    except (IndexError, ValueError, RuntimeError):
        longest = max((t for t in tokens if re.fullmatch(r"[-+]?\d.*", t.text)), key=lambda t: len(t.text))
        faults.append(("FUS001", longest, f"'{longest.text}' is out of the range of ONNX's numbers"))
        return []
    function = reader.text(model.functions[0], keys)
    misreadings = list(misread(function))
    faults += misreadings
    return [function] if misreadings else list(readings(function))


def _only(tokens: Sequence[Token], text: str) -> str:
    """The text from the first token to the last, everything else blank: positions stay what they are."""
    first, last = tokens[0], tokens[-1]
    lines = text.split("\n")[: last.line]
    lines[-1] = lines[-1][: last.column - 1 + len(last.text)]
    lines[first.line - 1] = " " * (first.column - 1) + lines[first.line - 1][first.column - 1 :]
    return "\n".join([""] * (first.line - 1) + lines[first.line - 1 :])


def _lexical(tokens: Sequence[Token]) -> Iterator[Fault]:
    """Words that are none."""
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        word = token.text
        if word == "//":
            yield "FUS003", token, "a comment starts with '#', not '//'"
        elif word in ("float16", "bfloat16") and _is_between(before, after, "{["):
            yield "FUS005", token, f"there are no {word} literals; write 'float': the number counts, not its type"
        elif word == '"':
            yield "FUS001", token, "this text has no second quote in its line"
        elif word[0].isalpha() or word[0] == "_":
            if "-" in word or not word.isascii() or ("." in word and not _is_between(before, after, "(<")):
                yield "FUS004", token, f"'{word}' is not a name: the letters a to z, digits and underscores only"
        elif not (word.isascii() and word.isprintable()) and word[0] != '"':
            yield "FUS001", token, f"the character U+{ord(word[0]):04X} has no place outside of comments"


def _is_between(before: Token | None, after: Token | None, brackets: str) -> bool:
    """Whether a word stands between `=` and one of these brackets."""
    return before is not None and before.text == "=" and after is not None and after.text in brackets


def _syntax(message: str, tokens: Sequence[Token]) -> tuple[Token, str]:
    position = _POSITION.search(message)
    reason = message.replace("\\n", "\n").splitlines()[-1].rstrip("'\"")
    if position is None:
        return tokens[0], reason
    return Token("", int(position[1]) - 1, int(position[2])), reason
