"""Somebody who follows a table's changelog, read from its files by the codecs of this folder."""

from collections.abc import Iterator, Sequence
from typing import Any

from lsm_engine.storage.file_io import FileIO
from tests.model.stored_table import ADD, Entry, StoredTable
from tests.model.table_model import Key

KINDS = ("+I", "-U", "+U", "-D")
Values = dict[str, Any]


class Replay:
    """The table as somebody sees it who follows its changelog.

    `strict`: a change says what was there before, and fits it (not so with the producer `input`).
    """

    def __init__(
        self,
        storage: FileIO,
        key_names: Sequence[str] = ("k",),
        *,
        deduplicates: bool = False,
        strict: bool = True,
    ) -> None:
        self.stored = StoredTable(storage)
        self.rows: dict[Key, Values] = {}
        self.seen = 0
        self._key_names = key_names
        self._deduplicates = deduplicates
        self._strict = strict

    def follow(self) -> None:
        """Apply the changelogs of new snapshots; asserts that each change fits what is there."""
        snapshots = self.stored.snapshots()
        for number, snapshot in sorted(snapshots.items()):
            if number <= self.seen:
                continue
            self.seen = number
            if snapshot["commitKind"] == "OVERWRITE":
                self._overwrite(snapshot)
            name = snapshot.get("changelogManifestList")
            count = 0
            for changes in self._changes(name) if name else ():
                count += len(changes)
                self._apply(changes)
            assert snapshot.get("changelogRecordCount") == (count if name else None), snapshot

    def _overwrite(self, snapshot: dict[str, Any]) -> None:
        """Overwrites tell nothing: whoever follows has to look what they took away."""
        for entry in self.stored.entries(snapshot["deltaManifestList"]):
            schema = self.stored.schema_of(entry)
            values = self.stored.partition(entry.partition, schema)
            if entry.kind == ADD and not self._strict:
                self._apply(self._rows(entry))
            for key in list(self.rows) if entry.kind != ADD else ():
                row = self.rows[key]
                if tuple(row[name] for name in schema.partition_keys) == values:
                    del self.rows[key]

    def _changes(self, name: str) -> Iterator[list[tuple[str, Values]]]:
        for entry in self.stored.entries(name):
            assert entry.name.startswith("changelog-"), entry.name
            yield self._rows(entry)

    def _rows(self, entry: Entry) -> list[tuple[str, Values]]:
        path = self.stored.data_path(entry, self.stored.schema_of(entry))
        columns = dict(self.stored.data(path))
        kinds = columns.pop("_VALUE_KIND")
        names = [one for one in columns if not one.startswith("_")]
        values = zip(*(columns[one] for one in names), strict=True)
        rows = [dict(zip(names, row, strict=True)) for row in values]
        return [(KINDS[kind], row) for kind, row in zip(kinds, rows, strict=True)]

    def _apply(self, changes: list[tuple[str, Values]]) -> None:
        before: tuple[str, Values] = ("", {})
        told: list[Key] = []
        for kind, row in changes:
            key = tuple(row[name] for name in self._key_names)
            if self._strict:
                self._check(kind, row, key, before)
            if kind in ("+I", "+U"):
                self.rows[key] = row
            else:
                self.rows.pop(key, None)
            told += [key] if kind != "+U" else []
            before = (kind, row)
        assert not self._strict or len(set(told)) == len(told), "a key changes once"

    def _check(self, kind: str, row: Values, key: Key, before: tuple[str, Values]) -> None:
        if kind == "+I":
            assert key not in self.rows, (kind, row, self.rows[key])
        elif kind == "+U":
            was = tuple(before[1].get(name) for name in self._key_names)
            assert (before[0], was) == ("-U", key), "a +U follows its own -U"
            assert not self._deduplicates or before[1] != row, "a pair of equal rows"
        else:
            assert self.rows.get(key) == row, (kind, row, self.rows.get(key))
