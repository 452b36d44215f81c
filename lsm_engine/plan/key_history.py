"""The versions of one key as facts: where each lies, who wrote it, and what became of it."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lsm_engine.base.record import record

POSITION = "_position"
FACTS = pa.schema(
    [
        pa.field(POSITION, pa.int32(), nullable=False),  # 0 is merged first
        pa.field("_row_kind", pa.string(), nullable=False),
        pa.field("_sequence_number", pa.int64(), nullable=False),
        pa.field("_partition", pa.string(), nullable=False),
        pa.field("_bucket", pa.int32(), nullable=False),
        pa.field("_level", pa.int32(), nullable=False),
        pa.field("_run", pa.int32(), nullable=False),  # of its bucket; 0 is the newest
        pa.field("_file_name", pa.string(), nullable=False),
        pa.field("_file_snapshot_id", pa.int64()),  # that added the file; null: no longer known
        pa.field("_snapshot_id", pa.int64()),  # that wrote the version; null: no longer known
        pa.field("_gives", pa.list_(pa.string())),  # columns whose final value it decided
        pa.field("_verdict", pa.string()),
    ]
)
"""Columns of `KeyExplanation.versions`; those of the table follow."""


@record
class KeyExplanation:
    """Why a key reads as it does in one snapshot.

    `versions`: one row per stored version in merge order, the oldest first; columns `FACTS`, then
    the table's. `row`: what a read gives, None if the key is not there. `rule` decides between
    whole rows, `column_rules` decide single columns, `verdict` sums up.
    """

    table: str
    snapshot_id: int | None
    key: Mapping[str, Any]
    versions: pa.Table
    row: Mapping[str, Any] | None
    rule: str
    column_rules: Mapping[str, str]
    verdict: str

    def text(self) -> str:
        """Render for people: the rule, each version, the outcome."""
        key = ", ".join(f"{name}={value!r}" for name, value in self.key.items())
        state_name = (
            "an empty table" if self.snapshot_id is None else f"snapshot {self.snapshot_id}"
        )
        lines = [f"{self.table}, {state_name}, key {key}", f"  {self.rule}"]
        names = [name for name in self.versions.schema.names if name not in FACTS.names]
        values = [name for name in names if name not in self.key]
        for version in self.versions.to_pylist():
            lines += _version_lines(version, values)
        return "\n".join([*lines, f"  {self.verdict}"])

    def __str__(self) -> str:
        return self.text()


def _version_lines(version: Mapping[str, Any], values: list[str]) -> list[str]:
    shown = ", ".join(f"{name}={version[name]!r}" for name in values if version[name] is not None)
    snapshot_id = version["_snapshot_id"]
    by = "an expired snapshot" if snapshot_id is None else f"snapshot {snapshot_id}"
    return [
        f"  {version['_position'] + 1}. {version['_row_kind']} {shown}",
        f"     sequence {version['_sequence_number']}, written by {by}; "
        f"level {version['_level']}, run {version['_run']}, {version['_file_name']}",
        f"     {version['_verdict']}",
    ]
