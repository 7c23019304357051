"""Why a fusion that was built is taken back: reason codes FUS4xx, their titles and help."""

from __future__ import annotations

from fusion_cli.types import FusedOp, OpCheck, Rejection, Verification

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
    """The reason to put the nodes of `op` back, if its own check gives one.

    With `never_slower` a kernel must have been measured to be faster, if it was timed at all.
    """
    if check.note:
        return _rejection(op, FAILS, f"{op.name} to run on {check.target}", check.note)
    if not check.ok:
        return _rejection(op, NUMBERS, f"an error of at most {check.tolerance:g}", f"{check.error:.2e}")
    before, after = check.before_us, check.after_us
    if never_slower and before is not None and after is not None and after >= before:
        return _rejection(op, SLOWER, f"less than {before:.1f} us", f"{after:.1f} us", "--force keeps it")
    return None


def rollback_least(op: FusedOp, verification: Verification) -> Rejection:
    """The reason to put the nodes of `op` back though its own check passed: the whole model did not."""
    if not verification.ok:
        worst = max(verification.outputs, key=lambda o: o.error)
        found = f"{worst.error:.2e} at output '{worst.output}'"
        return _rejection(op, NUMBERS, f"an error of the whole model of at most {worst.tolerance:g}", found)
    expected = f"at most {verification.before_us or 0:.1f} us for the whole model"
    found = f"{verification.after_us or 0:.1f} us; this kernel is among those that save the least"
    return _rejection(op, SLOWER, expected, found, "--force keeps it")


def _rejection(op: FusedOp, code: str, expected: str, found: str, hint: str = "") -> Rejection:
    node = op.calls[0].region.node_names[-1]
    return Rejection(op.rule, node, "verify", code, expected, found, hint, progress=1.0)
