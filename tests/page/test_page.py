"""The HTML page of a report: one file without network, right for large models and odd names too."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fusion_cli.measured import Choice
from fusion_cli.page import page
from fusion_cli.report import Report, write_report
from fusion_cli.report.read import read_report
from fusion_cli.report.verdict import verdict
from fusion_cli.runtime import read_manifest
from fusion_cli.types import Fate, GraphNode, Rejection
from tests.helpers.cli_helpers import call, write_model
from tests.helpers.made_up_reports import TIMED, dry_report, full_report

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Read(HTMLParser):
    """The elements of a page with their attributes and text; every one that is opened must be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data.strip())

    def of(self, tag: str, kind: str) -> list[dict[str, str | None]]:
        return [a for name, a in self.elements if name == tag and kind in (a.get("class") or "").split()]


def graph(*fates: Fate) -> tuple[GraphNode, ...]:
    return tuple(GraphNode(f"n{i}", "Relu", fate, (i - 1,) if i else ()) for i, fate in enumerate(fates))


def report() -> Report:
    stopped = Rejection(
        "Norm", "n4", "match", "FUS101", "Add", "Mul", "look there", saving_us=3.0, nodes=("n2", "n3", "n4"), matched=2
    )
    costly = Rejection("Demo", "n1", "score", "FUS301", "less than 2 us", "3 us", nodes=("n0", "n1"), progress=1.0)
    gone = Rejection("Demo", "n5", "verify", "FUS402", "about 1 us", "9 us", nodes=("n5",), target="cpu")
    nodes = graph("fused", "fused", "missed", "missed", "missed", "taken back", "left", "turned down")
    return replace(full_report(), rejected=(stopped, costly, gone), graph=nodes)


def test_the_verdict_comes_first_and_nothing_is_fetched() -> None:
    text = page(report())
    read = Read(text)
    assert read.texts["h1"] == [verdict(report())]
    assert not [a for _, a in read.elements for key in ("src", "href") if key in a]
    assert not re.search(r"https?://|@import|url\(", text)


def test_bars_are_as_long_as_the_models_take() -> None:
    read = Read(page(report()))
    (written,) = read.of("rect", "fused")[:1]
    (original,) = read.of("rect", "left")[:1]
    assert float(str(original["width"])) == pytest.approx(2 * float(str(written["width"])))
    assert any("2.00x (1.90 to 2.10) of the original's speed" in t for t in read.texts["text"])


def test_the_strip_holds_every_node_by_what_became_of_it() -> None:
    read = Read(page(report()))
    rects = [a for tag, a in read.elements if tag == "rect" and a.get("height") == "10" and "x" in a]
    widths = Counter({str(a["class"]): 0 for a in rects})
    for a in rects:
        widths[str(a["class"])] += int(str(a["width"]))
    assert widths == {"fused": 2, "missed": 3, "taken-back": 1, "left": 1, "turned-down": 1}
    nodes = json.loads("".join(t for t in read.texts["script"] if t.startswith("[[")))
    assert nodes[5] == ["n5", "Relu", "taken back"]


def test_the_edge_at_which_a_rule_stopped_is_red_and_what_matched_wholly_has_none() -> None:
    text = page(report())
    read = Read(text)
    assert len(read.of("line", "edge")) == 3
    assert len(read.of("line", "stop")) == 1
    assert len(read.of("rect", "stop")) == 1
    assert {"Add", "Mul", "look there"} <= set(read.texts["dd"])


def test_fusions_and_what_was_taken_back_are_told_with_their_numbers() -> None:
    read = Read(page(report()))
    cells = read.texts["td"]
    assert "2.50x" in cells  # predicted
    assert "2.00x" in cells  # measured
    assert {"about 1 us", "9 us"} <= set(cells)
    assert any(t.startswith("1.0e-07 of 1.0e-03") for t in cells)


def test_rooflines_have_a_point_for_each_number() -> None:
    fusions = tuple(
        replace(f, predicted={t: replace(s, operations=5e4) for t, s in f.predicted.items()}) for f in report().fusions
    )
    read = Read(page(replace(report(), fusions=fusions)))
    assert [len(read.of("circle", kind)) for kind in ("predicted", "measured")] == [1, 1]
    (line,) = read.of("polyline", "roof")
    ys = [float(pair.split(",")[1]) for pair in str(line["points"]).split()]
    assert ys[0] > ys[1] == ys[2]


def test_names_of_a_model_are_no_markup_and_end_no_script() -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\x1b"
    nodes = (GraphNode(evil, "Relu", "left", ()),)
    miss = Rejection(evil, evil, "match", "FUS101", evil, evil, evil, saving_us=1.0, nodes=(evil,))
    text = page(replace(report(), model=evil, graph=nodes, rejected=(miss,), notes=(evil,)))
    read = Read(text)
    assert sum(tag == "script" for tag, _ in read.elements) == 2
    assert not [tag for tag, _ in read.elements if tag == "img"]
    assert "\x1b" not in text


@pytest.mark.parametrize(
    "shown",
    [
        dry_report(),
        replace(full_report(float("inf")), graph=()),
        replace(full_report(), choice=Choice("original", "nothing was found"), verification=None, fusions=()),
        replace(full_report(), choice=Choice("kernels", "faster", TIMED), targets=("portable",)),
    ],
)
def test_what_is_not_there_is_left_out(shown: Report) -> None:
    assert Read(page(shown)).texts["h1"] == [verdict(shown)]


def test_a_large_model_is_a_few_hundred_bytes_a_node() -> None:
    fates: tuple[Fate, ...] = ("fused", "left", "missed", "turned down", "taken back")
    text = page(replace(report(), graph=graph(*(fates[i % 5] for i in range(10_000)))))
    Read(text)
    assert len(text) < 2_000_000


def test_the_command_writes_a_page_and_replaces_no_other_file(tmp_path: Path) -> None:
    write_report(report(), tmp_path / "report.json")
    out = tmp_path / "report.html"
    for _ in range(2):
        result = call("report", tmp_path / "report.json", "--html", out)
        assert result.exit_code == 0, result.output
    assert Read(out.read_text("utf-8")).texts["h1"] == [verdict(report())]
    (tmp_path / "mine.txt").write_text("mine")
    result = call("report", tmp_path / "report.json", "--html", tmp_path / "mine.txt")
    assert result.exit_code == 1
    assert (tmp_path / "mine.txt").read_text() == "mine"
    result = call("report", tmp_path / "mine.txt", "--html", out)
    assert result.exit_code == 1
    assert "no run is known of it" in result.stderr


def browse(path: Path, profile: Path, *flags: str) -> str:
    """The page in a browser without a window; what that prints."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", *flags]
    return subprocess.run([*command, path.as_uri()], capture_output=True, text=True, timeout=120, check=True).stdout


@needs_browser
def test_a_browser_shows_nodes_without_an_error(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page(report()), encoding="utf-8")
    shown = browse(path, tmp_path / "profile", "--dump-dom")
    assert "<li>Relu n5: taken back</li>" in shown
    assert shown.count("<li>") == 8


@needs_browser
@pytest.mark.parametrize("nodes", [8, 10_000])
def test_a_browser_draws_the_page(nodes: int, tmp_path: Path) -> None:
    """The picture is kept where ARTIFACTS names a folder."""
    fates: tuple[Fate, ...] = ("fused", "left", "missed", "turned down", "taken back")
    path, picture = tmp_path / "report.html", tmp_path / f"report-{nodes}-nodes.png"
    path.write_text(page(replace(report(), graph=graph(*(fates[i % 5] for i in range(nodes))))), encoding="utf-8")
    browse(path, tmp_path / "profile", "--window-size=1100,1900", "--hide-scrollbars", f"--screenshot={picture}")
    drawn = picture.read_bytes()
    assert drawn[:8] == b"\x89PNG\r\n\x1a\n"
    assert (int.from_bytes(drawn[16:20]), int.from_bytes(drawn[20:24])) == (1100, 1900)
    assert len(drawn) > 50_000  # an empty one is a tenth of that
    if folder := os.environ.get("ARTIFACTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, folder)


def test_every_bundle_holds_its_page(tmp_path: Path) -> None:
    model, out = write_model(tmp_path / "m.onnx"), tmp_path / "out.onnx"
    for _ in range(2):  # a page is ours, and gives way to the next
        assert call("optimize", model, "-o", out, "--target", "portable").exit_code == 0
    bundle = out.with_suffix(".fusion")
    assert "report.html" in read_manifest(bundle).files
    told = Read((bundle / "report.html").read_text("utf-8"))
    assert told.texts["h1"] == [verdict(read_report(bundle / "report.json"))]
    assert call("report", out, "--html", tmp_path / "again.html").exit_code == 0
    assert (tmp_path / "again.html").read_text("utf-8") == (bundle / "report.html").read_text("utf-8")
