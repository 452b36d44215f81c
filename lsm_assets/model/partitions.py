"""The only place that spells a partition key or the name of a set of partitions."""

from collections.abc import Iterable, Sequence

import dagster as dg

from lsm_assets.model.keys import TableKeys


def snapshot_partitions(keys: TableKeys) -> dg.DynamicPartitionsDefinition:
    """One partition per live snapshot of a table; its key is the snapshot's id."""
    return dg.DynamicPartitionsDefinition(name=f"{keys.name}$snapshots")


def tag_partitions(keys: TableKeys) -> dg.DynamicPartitionsDefinition:
    """One partition per tag of a table; its key is the tag's name."""
    return dg.DynamicPartitionsDefinition(name=f"{keys.name}$tags")


def snapshot_partition(snapshot_id: int) -> str:
    """Spell a snapshot's partition key."""
    return str(snapshot_id)


def snapshot_id_of(partition: str) -> int | None:
    """Read a snapshot's partition key; None if a person typed something else."""
    return int(partition) if partition.isdecimal() and partition.isascii() else None


def in_order(partitions: Iterable[str]) -> list[str]:
    """Sort snapshot partitions by id; strangers come last, by name."""
    return sorted(partitions, key=lambda key: (snapshot_id_of(key) is None, len(key), key))


def partition_set_name(definition: dg.DynamicPartitionsDefinition) -> str:
    """Return the name under which an instance keeps the partitions."""
    name = definition.name
    assert name is not None, "these partitions are kept under a name"
    return name


def differences(known: Sequence[str], wanted: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return (to add, to remove) that turn `known` into `wanted`, each in the given order."""
    known_set, wanted_set = set(known), set(wanted)
    add = [key for key in wanted if key not in known_set]
    remove = [key for key in known if key not in wanted_set]
    return add, remove
