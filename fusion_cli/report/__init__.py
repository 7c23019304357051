"""What a run did, as a frozen value, as report.json (schema: docs/report.md), and as text for a terminal."""

from fusion_cli.report.model import Fusion, Report, Summary, make_report, write_report
from fusion_cli.report.render import render_answer, render_explain, render_summary

__all__ = [
    "Fusion",
    "Report",
    "Summary",
    "make_report",
    "render_answer",
    "render_explain",
    "render_summary",
    "write_report",
]
