"""Which of the vendor's kernels for a product is taken."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.cuda_host_library import host_program, output_of


def tried(*kernels: int | str) -> str:
    """The numbers of kernels as a trial has them run."""
    return "".join(str(kernel) * 5 for kernel in kernels)


def test_the_first_kernel_is_taken_unless_another_one_is_clearly_better(tmp_path: Path) -> None:
    *lines, told_runs, told = output_of(host_program("vendor_choice.cc", tmp_path)).splitlines()
    assert told_runs.strip() == tried(0, 1, "o") + "o"
    assert told == (
        "tried a product of 128x4096x16384, cuBLASLt's of 40.40 us, cuBLASLt's of 41.20 us,"
        " ours of 36.30 us, ours, which fails; taken is ours of 36.30 us"
    )
    found = {name: tuple(runs) for name, *runs in (line.split() for line in lines)}
    assert found == {
        "faster": (tried(0, 1, 2) + "2", "2"),
        "hardly_faster": (tried(0, 1) + "0", "0"),
        "fails": (tried(0) + "1" + tried(2) + "2", "2"),
        "first_fails": ("0" + tried(1) + "1", "1"),
        "alone": ("0", "0"),
        "captured": ("0", tried(0, 1) + "1", "1"),  # nothing can be timed in a graph
        "in_place": ("0",),  # a second run would add to what the first one made
        "no_residual": (tried(0, 1) + "1",),
        "rows": (tried(0, 1) + "1", "1", tried(0, 1) + "1", "1", tried(0, 1) + "1"),  # 64 of them are a class
        "other_operator": ("1",),
        "gone": ("0",),
        "full": (tried(0, 1) + "1",),  # no memory to push out of the cache what is there
        "host_is_late": ("00" + tried(0, 1) + "1",),  # what the GPU waits for the host in does not count
        "host_is_always_late": ("0000" + tried(0) + "1111" + tried(1) + "1",),
        "own_is_faster": (tried(0, 1, "o") + "o", "o"),
        "own_is_slower": (tried(0, 1, "o") + "1", "1"),
        "own_alone": (tried(0, "o") + "o", "o"),
        "own_hardly": (tried(0, "o") + "0", "0"),
        "own_begins_early": (tried(0, "o") + "o", "o"),
        "own_does_not_gain_by_it": (tried(0, "o") + "0", "0"),
        "own_refuses": (tried(0, 1) + "1", "1"),
        "own_refuses_later": (tried(0, "o") + "o", "0"),
        "own_second": (tried(0, 1, "o", "p") + "p", "p"),
        "own_second_alone": (tried(0, 1, "p") + "p", "p"),
        "own_second_is_slower": (tried(0, 1, "o", "p") + "o", "o"),
        "own_second_refuses_later": (tried(0, 1, "o", "p") + "p", "o", "0"),
        "own_in_place": ("0", "0"),
        "own_of_many": ("0", "0"),  # more would be bound by power
        "more_weights": ("2", "2"),  # the same, but for rows that are read fewer times
        "more_rows": ("0", "0"),
        "left": ("0",),  # blocks of that memory
    }
