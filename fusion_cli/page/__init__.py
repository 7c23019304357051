"""A report as one HTML file: no network, no library, plain SVG."""

from __future__ import annotations

import jinja2

from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.page.cut_outs import cut_outs
from fusion_cli.page.figures import bars, error_rows, fusion_rows, legend, roof_of, roofs, runs
from fusion_cli.report import Report
from fusion_cli.report.outcome import checked
from fusion_cli.report.readable import printable, show_us
from fusion_cli.report.verdict import verdict

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader("fusion_cli", "page"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
    finalize=lambda value: printable(value) if type(value) is str else value,
)
_ENVIRONMENT.filters["us"] = show_us


def roofline(profile: DeviceProfile) -> str:
    """A device's roofline as a file of SVG."""
    return _ENVIRONMENT.get_template("roofline.svg.jinja").render(roof=roof_of(profile.name, profile))


def page(report: Report) -> str:
    """The report as HTML: the verdict, times, the model's nodes in a strip, what was predicted and measured, near
    misses, rooflines and errors."""
    return _ENVIRONMENT.get_template("report.html.jinja").render(
        report=report,
        verdict=verdict(report),
        checked=checked(report) if report.output is not None else [],
        bars=bars(report),
        runs=runs(report.graph),
        legend=legend(report.graph),
        nodes=[[printable(n.name), n.operator, n.fate] for n in report.graph],
        fusions=fusion_rows(report),
        taken_back=[r for r in report.rejected if r.stage == "verify"],
        cut_outs=cut_outs(report),
        roofs=roofs(report),
        errors=error_rows(report),
    )
