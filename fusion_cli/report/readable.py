"""Numbers as people read them, and names that are safe to print."""

from __future__ import annotations

from dataclasses import fields

from fusion_cli.costs import Terms

_LONGEST = 2000
_LEAST_US = 0.05
_UNITS = ((1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB"))


def show_bytes(count: float) -> str:
    """A byte count with a decimal unit: 1500 -> "1.5 kB"."""
    if abs(count) < 1000:
        return f"{count:.0f} B"
    scale, unit = next((s for s in _UNITS if abs(count) < 1000 * s[0]), _UNITS[-1])
    return f"{count / scale:.1f} {unit}"


def show_us(us: float | None) -> str:
    """A duration given in microseconds."""
    if us is None:
        return "-"
    if abs(us) < 1000:
        return f"{us:.1f} us"
    return f"{us / 1000:.2f} ms" if abs(us) < 1e6 else f"{us / 1e6:.2f} s"


def show_speed(before_us: float | None, after_us: float | None) -> str:
    """ "1.42 ms -> 1.10 ms (1.29x)", or "-" where it was not measured."""
    if before_us is None or after_us is None or after_us <= 0:
        return "-"
    return f"{show_us(before_us)} -> {show_us(after_us)} ({before_us / after_us:.2f}x)"


def spent(terms: Terms) -> str:
    """What a predicted time is made of: "8.2 us compute, 3.1 us launch"."""
    found = ((f.name, getattr(terms, f.name)) for f in fields(terms))
    return ", ".join(f"{show_us(us)} {name}" for name, us in found if us >= _LEAST_US) or "nothing"


def counted(count: int, noun: str, plural: str = "") -> str:
    """ "1 kernel", "2 kernels"; `plural` where it is irregular."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def show_saved(count: float) -> str:
    """Bytes that need not be moved: "1.5 kB less traffic", and more where there are."""
    return f"{show_bytes(abs(count))} {'less' if count >= 0 else 'more'} traffic"


def printable(text: str) -> str:
    """`text` as one line without control characters: a name from a model must not be able to steer a terminal, nor to
    begin a line of a log. Of a long text the beginning and the end."""
    line = text
    if not text.isprintable():  # which is quick
        line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]}...{line[-_LONGEST // 2 :]}"


def printable_lines(text: str) -> str:
    """The same of a text whose lines are ours, or those of a user's own file."""
    return "\n".join(map(printable, text.split("\n")))
