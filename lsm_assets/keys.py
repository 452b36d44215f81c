"""Asset keys, op names, pools and links of a table. Only this module formats them."""

import re
import zlib
from collections.abc import Iterable, Sequence
from enum import Enum
from urllib.parse import quote

import dagster as dg

from lsm_engine import ErrorKind, InvalidInputError, record

_NOT_AN_IDENTIFIER = re.compile(r"[^A-Za-z0-9_]")


class AssetKind(Enum):
    """The assets of one table. The value is the suffix of the asset key."""

    TABLE = ""
    FILES = "files"
    MANIFEST_LISTS = "manifest_lists"
    SNAPSHOTS = "snapshots"
    TAGS = "tags"
    COMPACTION = "compaction"


@record
class TableKeys:
    """The Dagster names of one table, derived from its name in the catalog (`shop.orders`).

    Nodes of the asset graph show only the last part of a key, so that this part begins with the table's name.
    Raises InvalidInputError if the name is not `database.table`.
    """

    name: str

    def __post_init__(self) -> None:
        if self.name.count(".") != 1:
            raise InvalidInputError(
                f"a table is named database.table, not {self.name!r}; the key of its asset has a part for "
                "each, without dots",
                kind=ErrorKind.INVALID_NAME,
                table=self.name,
            )

    @property
    def database(self) -> str:
        """`shop` of `shop.orders`."""
        return self.name.split(".")[0]

    @property
    def short_name(self) -> str:
        """`orders` of `shop.orders`."""
        return self.name.split(".")[1]

    @property
    def identifier(self) -> str:
        """A unique name of letters, digits and underscores: `shop__orders`."""
        identifier = _NOT_AN_IDENTIFIER.sub("_", f"{self.database}__{self.short_name}")
        if identifier == f"{self.database}__{self.short_name}":
            return identifier
        # Two names may differ only in characters that were replaced.
        return f"{identifier}_{zlib.crc32(self.name.encode()):08x}"

    def asset(self, kind: AssetKind) -> dg.AssetKey:
        """Return the key of one of the table's assets: `[shop, orders]` or `[shop, orders.files]`."""
        suffix = f".{kind.value}" if kind.value else ""
        return dg.AssetKey([self.database, self.short_name + suffix])

    def view(self, name: str) -> dg.AssetKey:
        """Return the key of a virtual asset: `[shop, orders.branch_dev]` of the branch `shop.orders$branch_dev`."""
        return dg.AssetKey([self.database, f"{self.short_name}.{name}"])

    def op(self, action: str) -> str:
        """Return the name of an op, job, sensor or schedule of this table. A code location has one of each name."""
        return f"{self.identifier}__{action}" if action else self.identifier

    @property
    def pool(self) -> str:
        """The Dagster pool that serialises writers and compactions of this table across processes."""
        return f"lsm__{self.identifier}"


READ_OPTIMIZED, BRANCH_PREFIX = "ro", "branch_"
"""Names of views, as after the `$` in Paimon's table names."""
ICEBERG = "iceberg"
"""The name of the view of a table's Iceberg metadata, which has events of its own."""


def table_keys(key: dg.AssetKey) -> TableKeys:
    """Return the names of the table of an asset key; the database of a key with one part is `default`."""
    parts = key.path
    if len(parts) < 2:
        return TableKeys(name=f"default.{parts[-1]}")
    return TableKeys(name=f"{'_'.join(parts[:-1])}.{parts[-1]}")


def viewed_table(key: dg.AssetKey) -> dg.AssetKey | None:
    """Return the table of a virtual asset without events of its own; None for other keys."""
    name, _, view = key.path[-1].partition(".")
    is_view = view == READ_OPTIMIZED or view.startswith(BRANCH_PREFIX)
    return dg.AssetKey([*key.path[:-1], name]) if is_view else None


def asset_link(key: dg.AssetKey, partition: str | None = None) -> str:
    """Return the URL of an asset's page, or of one of its partitions, relative to the UI."""
    path = "/assets/" + "/".join(quote(part, safe="") for part in key.path)
    if partition is None:
        return path
    return f"{path}?view=partitions&partition={quote(partition, safe='')}"


def run_link(run_id: str) -> str:
    """Return the URL of a run's page, relative to the UI."""
    return f"/runs/{quote(run_id, safe='')}"


# -- Dynamic partitions of snapshots and tags ------------------------------------------------------
#
# Only this module formats and parses their keys.


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
