"""The command line: one module per group of commands, `common` for what they share."""

from __future__ import annotations

from importlib import import_module

import click

from fusion_cli.cli.common import Commands
from fusion_cli.version import __version__

__all__ = ["main"]

_COMMANDS = {
    "bench": ("models", "Time A and B in one process, alternating."),
    "devices": ("devices", "List and show hardware profiles."),
    "doctor": ("doctor", "Check what is installed; say what is missing and how to get it."),
    "explain": ("explain", "Say what would be fused in MODEL, and why nothing else is."),
    "optimize": ("optimize", "Fuse MODEL and write the result to OUT, with its kernels."),
    "rules": ("rules", "List, show, check, write and try fusion rules."),
    "trust": ("models", "Have the libraries of MODEL run as if they were built here."),
    "verify": ("models", "Run A and B on the same inputs and compare every output."),
}
"""By name: the module, loaded when the command is used (libraries for models take a second), and a line for --help."""


class _Main(Commands):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"{__name__}.{_COMMANDS[name][0]}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])


@click.group(cls=_Main, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fusion-cli")
def main() -> None:
    """Compile an ONNX model into a faster ONNX model that stock ONNX Runtime executes."""
