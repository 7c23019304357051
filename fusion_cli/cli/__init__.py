"""The command line: one module per group of commands, `common` for what they share."""

from __future__ import annotations

import click

from fusion_cli import __version__
from fusion_cli.cli.common import Commands
from fusion_cli.cli.devices import devices
from fusion_cli.cli.doctor import doctor
from fusion_cli.cli.explain import explain
from fusion_cli.cli.models import bench, verify
from fusion_cli.cli.optimize import optimize
from fusion_cli.cli.rules import rules

__all__ = ["main"]


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fusion-cli")
def main() -> None:
    """Compile an ONNX model into a faster ONNX model that stock ONNX Runtime executes."""


for command in (optimize, explain, verify, bench, rules, devices, doctor):
    main.add_command(command)
