"""Why a fusion that was built is taken back: reason codes FUS4xx, their titles and help."""

from __future__ import annotations

from fusion_cli.types import FusedOp, OpCheck, Rejection

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


def rollback(op: FusedOp, check: OpCheck, *, never_slower: bool) -> Rejection | None:
    """The reason to put the nodes of `op` back, if its check gives one.

    With `never_slower` a kernel must have been measured to be faster, if it was timed at all.
    """
    node = op.calls[0].region.node_names[0]

    def rejection(code: str, expected: str, found: str, hint: str = "") -> Rejection:
        return Rejection(op.rule, node, "verify", code, expected, found, hint, progress=1.0)

    if check.note:
        return rejection(FAILS, f"{op.name} to run on {check.target}", check.note)
    if not check.ok:
        return rejection(NUMBERS, f"an error of at most {check.tolerance:g}", f"{check.error:.2e}")
    if (
        never_slower
        and check.before_us is not None
        and check.after_us is not None
        and check.after_us >= check.before_us
    ):
        found = f"{check.after_us:.1f} us"
        return rejection(SLOWER, f"less than {check.before_us:.1f} us", found, "--force keeps it")
    return None
