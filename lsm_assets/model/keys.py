"""The only place that spells an asset key, a group, an op name, a pool or a link to an asset."""

import re
import zlib
from enum import Enum
from urllib.parse import quote

import dagster as dg

from lsm_engine import ErrorKind, InvalidInputError, record

_NOT_A_WORD = re.compile(r"[^A-Za-z0-9_]")


class AssetKind(Enum):
    """The kinds of asset that one table is made of; the value is the suffix of the key."""

    TABLE = ""
    FILES = "files"
    MANIFEST_LISTS = "manifest_lists"
    SNAPSHOTS = "snapshots"
    TAGS = "tags"
    COMPACTION = "compaction"


@record
class TableKeys:
    """Every Dagster name of one table, spelled from its catalog name (`shop.orders`).

    Graph nodes show only the last part of a key, so that part repeats the table's name.
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
        """A name made of letters, digits and underscores, unique per table: `shop__orders`."""
        plain = _NOT_A_WORD.sub("_", f"{self.database}__{self.short_name}")
        if plain == f"{self.database}__{self.short_name}":
            return plain
        # Two names may differ only in what had to be replaced.
        return f"{plain}_{zlib.crc32(self.name.encode()):08x}"

    def asset(self, kind: AssetKind) -> dg.AssetKey:
        """The key of one of the table's assets: `[shop, orders]` or `[shop, orders.files]`."""
        suffix = f".{kind.value}" if kind.value else ""
        return dg.AssetKey([self.database, self.short_name + suffix])

    def op(self, act: str) -> str:
        """A name for an op, a job, a sensor or a schedule; these are global in a code location."""
        return f"{self.identifier}__{act}" if act else self.identifier

    @property
    def pool(self) -> str:
        """What serialises writers and compactions of this table, across processes."""
        return f"lsm__{self.identifier}"


def keys_of(key: dg.AssetKey) -> TableKeys:
    """Return the names of the table that a table asset's key stands for."""
    parts = key.path
    if len(parts) < 2:
        return TableKeys(name=f"default.{parts[-1]}")
    return TableKeys(name=f"{'_'.join(parts[:-1])}.{parts[-1]}")


def asset_link(key: dg.AssetKey, partition: str | None = None) -> str:
    """Return the page of an asset, or of one of its partitions, relative to the UI's address."""
    path = "/assets/" + "/".join(quote(part, safe="") for part in key.path)
    if partition is None:
        return path
    return f"{path}?view=partitions&partition={quote(partition, safe='')}"


def run_link(run_id: str) -> str:
    """Return the page of a run, relative to the UI's address."""
    return f"/runs/{quote(run_id, safe='')}"
