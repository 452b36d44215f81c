"""Entries of manifests as columns: what no entry may say, and many small files decoded together."""

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.ids import POSTPONE_BUCKET_COUNT
from lsm_engine.codec.avro import decode_joined
from lsm_engine.codec.avro_container import Container, read_container
from lsm_engine.codec.manifest_columns import (
    ENTRY_VERSION,
    MANIFEST_COLUMNS,
    known_columns,
    require,
)

UNSAFE_NAME = r"[/\\\x00]|^\.{0,2}$"


def decode_small_manifests(files: Mapping[str, bytes]) -> list[pa.Table] | None:
    """Return the entries of small manifests, by their names, as `decode_manifest` does of each.

    None where they must be decoded one by one. What is raised may name another of them.
    """
    containers = [read_container(data, file_name=name) for name, data in files.items()]
    entries = joined_manifests(containers, MANIFEST_COLUMNS)
    if entries is None:
        return None
    table, counts = entries
    ends = accumulate(counts)
    return [table.slice(end - count, count) for count, end in zip(counts, ends, strict=True)]


def joined_manifests(
    containers: Sequence[Container], columns: Collection[str]
) -> tuple[pa.Table, list[int]] | None:
    """Return some columns of small manifests, one's entries behind the other's, and how many each has.

    None, and what is raised, as of `decode_small_manifests`.
    """
    entries = decode_joined(containers, {*columns, "_VERSION"})
    if entries is None:
        return None
    name, chosen = (
        containers[0].file_name,
        [column for column in MANIFEST_COLUMNS if column in columns],
    )
    table = known_columns(
        entries[0], MANIFEST_COLUMNS, chosen, file_name=name, version=ENTRY_VERSION
    )
    return checked_entries(table, name), entries[1]


def checked_entries(table: pa.Table, file_name: str) -> pa.Table:
    """Return entries; raises CorruptFileError for values that no entry has."""
    column_names = set(table.column_names)
    checks: list[tuple[str, object]] = []
    if "_KIND" in column_names:
        checks.append(("an entry neither adds nor deletes", outside(table["_KIND"], 0, 1)))
    if "_BUCKET" in column_names:
        bucket = table["_BUCKET"]
        is_none = pc.and_(pc.less(bucket, 0), pc.not_equal(bucket, POSTPONE_BUCKET_COUNT))
        checks.append(("_BUCKET is that of no bucket", is_none))
    if "_FILE._FILE_NAME" in column_names:
        unsafe = pc.match_substring_regex(table["_FILE._FILE_NAME"], UNSAFE_NAME)
        checks.append(("a file name leads out of its directory", unsafe))
    for name in ("_FILE._FILE_SIZE", "_FILE._ROW_COUNT", "_FILE._LEVEL", "_FILE._DELETE_ROW_COUNT"):
        if name in column_names:
            checks += [(f"{name} is negative", pc.less(table[name], 0))]
    if {"_FILE._MIN_SEQUENCE_NUMBER", "_FILE._MAX_SEQUENCE_NUMBER"} <= column_names:
        low, high = table["_FILE._MIN_SEQUENCE_NUMBER"], table["_FILE._MAX_SEQUENCE_NUMBER"]
        checks.append(("sequence numbers run backwards", pc.greater(low, high)))
    require(table, checks, file_name)
    return table


def outside(column: pa.ChunkedArray, low: int, high: int) -> Any:
    """Mark the values that are below `low` or above `high`."""
    return pc.or_(pc.less(column, low), pc.greater(column, high))
