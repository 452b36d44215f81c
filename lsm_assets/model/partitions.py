"""Dynamic partitions of snapshots and tags. Only this module formats and parses their keys."""

from collections.abc import Iterable, Sequence

import dagster as dg

from lsm_assets.model.keys import TableKeys


def snapshot_partitions(keys: TableKeys) -> dg.DynamicPartitionsDefinition:
    """Return the partitions of a table's live snapshots. A partition key is a snapshot id."""
    return dg.DynamicPartitionsDefinition(name=f"{keys.name}$snapshots")


def tag_partitions(keys: TableKeys) -> dg.DynamicPartitionsDefinition:
    """Return the partitions of a table's tags. A partition key is the name of a tag."""
    return dg.DynamicPartitionsDefinition(name=f"{keys.name}$tags")


def snapshot_partition(snapshot_id: int) -> str:
    """Return the partition key of a snapshot."""
    return str(snapshot_id)


def parse_snapshot_partition(partition: str) -> int | None:
    """Return the snapshot id of a partition key; None for a key that a user has typed and that is no id."""
    return int(partition) if partition.isdecimal() and partition.isascii() else None


def sorted_snapshot_partitions(partitions: Iterable[str]) -> list[str]:
    """Return snapshot partitions sorted by id. Keys that are no ids come last, sorted as strings."""
    return sorted(
        partitions, key=lambda key: (parse_snapshot_partition(key) is None, len(key), key)
    )


def partition_set_name(definition: dg.DynamicPartitionsDefinition) -> str:
    """Return the name under which a Dagster instance stores dynamic partitions."""
    name = definition.name
    assert name is not None, "snapshot_partitions and tag_partitions set a name"
    return name


def differences(current: Sequence[str], target: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the keys to add to `current` and the keys to remove from it, so that it becomes `target`."""
    current_set, target_set = set(current), set(target)
    add = [key for key in target if key not in current_set]
    remove = [key for key in current if key not in target_set]
    return add, remove
