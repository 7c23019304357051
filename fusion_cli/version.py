"""What this distribution is called, its version, and what its operators are found by, so that any part can say it."""

__version__ = "0.1.0"
DISTRIBUTION = "onnx-fusion-cli"
"""What to install; the package is `fusion_cli` and the command `fusion-cli`."""
DOMAIN = "fusion"
"""Of the functions that kernels stand for."""


def install(extra: str) -> str:
    """The command that installs this with an extra of pyproject.toml."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
