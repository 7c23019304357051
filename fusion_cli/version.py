"""What this distribution is called, and its version, by itself so that any part can say it."""

__version__ = "0.1.0"
DISTRIBUTION = "onnx-fusion-cli"
"""What to install; the package is `fusion_cli` and the command `fusion-cli`."""


def install(extra: str) -> str:
    """The command that installs this with an extra of pyproject.toml."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
