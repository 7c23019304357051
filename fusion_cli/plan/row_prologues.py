"""What a kernel of rows computes of a product for itself, so that the product need not write it."""

from __future__ import annotations

from collections.abc import Sequence, Set

from fusion_cli.plan.graph import CHEAP, Val
from fusion_cli.plan.kernel_group import ANCHORED, Group
from fusion_cli.plan.partition import Partition


def sink_into_rows(partition: Partition) -> None:
    """Move what a product's or a convolution's kernel computes for one kernel of rows alone to that kernel, where it
    comes from what is written anyway: of a sum that is kept its copy in float32, and the squares of that."""
    for group in dict.fromkeys(partition.group.values()):
        if group.kind in ANCHORED:
            written = set(partition.stored(group))
            moved: dict[Val, Group] = {}
            for rows, vals in _for_rows(partition, group).items():
                moved |= dict.fromkeys(_from_written(partition, group, vals, written), rows)
            partition.move(group, moved)


def _for_rows(partition: Partition, group: Group) -> dict[Group, list[Val]]:
    """The values that only one kernel of rows needs, by that kernel, in their order."""
    needed: dict[Val, Group] = {}
    for val in reversed(group.vals):
        if val.op in CHEAP and not partition.is_output(val):
            readers = {
                needed.get(reader, partition.group[reader]) if direct else None
                for reader, direct in partition.aliases.readers(val)
            }
            rows = readers.pop() if len(readers) == 1 else None
            if rows is not None and rows.kind == "rowwise" and partition.same(val.shape, rows.shape):
                needed[val] = rows
    found: dict[Group, list[Val]] = {}
    for val, rows in reversed(needed.items()):
        found.setdefault(rows, []).append(val)
    return found


def _from_written(partition: Partition, group: Group, vals: Sequence[Val], written: Set[Val]) -> list[Val]:
    """Those that can be computed from what the group writes and from smaller operands, so that there is no more to read
    than they are themselves; without those that the group needs for the others."""
    found: dict[Val, None] = {}
    needed: set[Val] = set()
    for val in vals:
        own = {a for a in val.args if partition.group.get(a) is group}
        large = (a for a in val.args if partition.same(a.shape, val.shape))
        if all(a in written or a in found for a in own) and own.issuperset(large):
            found[val] = None
        else:
            needed |= own
    for val in reversed(vals):
        if val in needed:
            found.pop(val, None)
            needed.update(val.args)
    return list(found)
