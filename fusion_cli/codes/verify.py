"""Why a fusion that was built is taken back: reason codes FUS4xx, their titles and help."""

from __future__ import annotations

NUMBERS = "FUS401"
SLOWER = "FUS402"
FAILS = "FUS403"

CODES: dict[str, tuple[str, str]] = {
    NUMBERS: (
        "The kernel's numbers differ",
        "On inputs taken from a run of the model, the kernel's result was further from that of the nodes it replaces "
        "than the element type's tolerance allows. The nodes were put back. Please report it with the source.",
    ),
    SLOWER: (
        "The kernel is not faster",
        "Measured on this machine, ONNX Runtime ran the nodes themselves at least as fast as the kernel, so they were "
        "put back. --force keeps the kernel.",
    ),
    FAILS: (
        "The kernel does not run",
        "ONNX Runtime could not load or run the operator's library on this machine; the nodes were put back.",
    ),
}
