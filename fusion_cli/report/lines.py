"""Lines for a terminal: names that come from a model are neither markup nor control characters."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from fusion_cli.report.readable import printable

INDENT = 14
"""Columns that labels take."""
_WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def print_line(console: Console, text: str, style: str = "") -> None:
    """One line, however long."""
    console.print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)


def print_wrapped(console: Console, text: str, indent: int = 0, style: str = "") -> None:
    """Text that nobody pastes: on a terminal its lines break between words, all but the first after `indent` blanks."""
    lines = [printable(text)]
    if console.is_terminal:
        after = " " * indent
        lines = textwrap.wrap(lines[0], console.width, subsequent_indent=after, **_WHOLE_WORDS)
    for line in lines:
        print_line(console, line, style)


def print_facts(console: Console, facts: Iterable[tuple[str, str]]) -> None:
    """Labelled lines below a heading; on a terminal they wrap within their column."""
    told = [(label, printable(text)) for label, text in facts if text]
    if not console.is_terminal:
        for label, text in told:
            print_line(console, f"    {label:<9} {text}")
        return
    table = Table.grid(padding=(0, 1))
    table.add_column(min_width=9)
    table.add_column(overflow="fold")
    for label, text in told:
        table.add_row(escape(label), escape(text))
    console.print(Padding(table, (0, 0, 0, 4)), highlight=False)


def listed(names: Sequence[str], limit: int = 8) -> str:
    """The first names, and how many there are more."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
