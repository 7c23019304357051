"""`python -m fusion_cli` is `fusion-cli`."""

from fusion_cli.cli import main

main(prog_name="fusion-cli")
