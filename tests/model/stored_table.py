"""What lies in a table's directory, read with fastavro, json and plain PyArrow: no engine code.

Only files are looked at, through any FileIO's `read` and `list`. Files are immutable, so what was
decoded once is kept by name and size.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from tests.model.avro_records import avro_records
from tests.model.column_kinds import NAN, Plain, to_plain
from tests.model.stored_rows import StoredType, decode_stored, partition_path, stored_type

ADD, DELETED = 0, 1
ROW_TRACKING = ("_ROW_ID", "_SEQUENCE_NUMBER")


@dataclass(frozen=True)
class StoredSchema:
    """One schema file."""

    id: int
    types: dict[str, StoredType]
    nullable: dict[str, bool]
    partition_keys: list[str]
    primary_keys: list[str]
    options: dict[str, str]

    @property
    def trimmed_key(self) -> list[str]:
        return [
            name for name in self.primary_keys if name not in self.partition_keys
        ] or self.primary_keys

    def types_of(self, names: list[str]) -> list[StoredType]:
        """Types of columns, `_ROW_ID` and `_SEQUENCE_NUMBER` included."""
        long = stored_type("BIGINT NOT NULL")
        return [long if name in ROW_TRACKING else self.types[name] for name in names]


@dataclass(frozen=True)
class Entry:
    """A manifest entry, as its Avro record says."""

    kind: int
    partition: bytes
    bucket: int
    total_buckets: int
    file: dict[str, Any]

    @property
    def identity(self) -> tuple[bytes, int, int, str]:
        return (self.partition, self.bucket, self.file["_LEVEL"], self.file["_FILE_NAME"])

    @property
    def level(self) -> int:
        return self.file["_LEVEL"]

    @property
    def name(self) -> str:
        return self.file["_FILE_NAME"]

    @property
    def rows(self) -> int:
        return self.file["_ROW_COUNT"]


class StoredTable:
    """A table's directory; `storage` is any FileIO rooted at it."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage
        self._kept: dict[tuple[str, int], Any] = {}
        self.checked: set[Any] = set()
        """Facts that invariants have proven and that cannot change any more."""

    def files(self) -> dict[str, int]:
        """Every file with its size."""
        return {status.path: status.size for status in self._walk("")}

    def _walk(self, directory: str) -> Iterator[Any]:
        for status in self.storage.list(directory):
            if status.is_directory:
                yield from self._walk(status.path)
            else:
                yield status

    # Documents.

    def snapshots(self, line: str = "") -> dict[int, dict[str, Any]]:
        """Snapshots by id; `line` is "" or the directory of a branch, with a slash."""
        return {
            int(name.removeprefix("snapshot-")): self._json(f"{line}snapshot/{name}")
            for name in self._names(f"{line}snapshot")
            if name.startswith("snapshot-")
        }

    def tags(self, line: str = "") -> dict[str, dict[str, Any]]:
        return {
            name.removeprefix("tag-"): self._json(f"{line}tag/{name}")
            for name in self._names(f"{line}tag")
            if name.startswith("tag-")
        }

    def changelogs(self, line: str = "") -> dict[int, dict[str, Any]]:
        """Changelogs that have outlived their snapshots."""
        return {
            int(name.removeprefix("changelog-")): self._json(f"{line}changelog/{name}")
            for name in self._names(f"{line}changelog")
            if name.startswith("changelog-")
        }

    def lines(self) -> list[str]:
        """The table itself, and the directory of each branch."""
        return ["", *(f"branch/{name}/" for name in self._names("branch"))]

    def schemas(self) -> dict[int, StoredSchema]:
        found = {}
        for name in self._names("schema"):
            if name.startswith("schema-"):
                schema = self._schema(name)
                found[schema.id] = schema
        return found

    def hint(self, name: str) -> int | None:
        path = f"snapshot/{name}"
        return int(self.storage.read(path)) if self.storage.exists(path) else None

    def _names(self, directory: str) -> list[str]:
        return [status.name for status in self.storage.list(directory)]

    def _json(self, path: str) -> dict[str, Any]:
        return json.loads(self.storage.read(path))

    def _schema(self, name: str) -> StoredSchema:
        kept = self._kept.get((name, 0))
        if kept is None:
            stored = self._json(f"schema/{name}")
            fields = stored["fields"]
            kept = self._kept[name, 0] = StoredSchema(
                id=stored["id"],
                types={field["name"]: stored_type(field["type"]) for field in fields},
                nullable={field["name"]: "NOT NULL" not in field["type"] for field in fields},
                partition_keys=stored["partitionKeys"],
                primary_keys=stored["primaryKeys"],
                options=stored["options"],
            )
        return kept

    # Manifests.

    def manifest_list(self, name: str) -> list[dict[str, Any]]:
        return self._avro(f"manifest/{name}")

    def manifest(self, name: str) -> list[Entry]:
        path = f"manifest/{name}"
        kept = self._kept.get((path, -1))
        if kept is None:
            kept = self._kept[path, -1] = [
                Entry(
                    record["_KIND"],
                    record["_PARTITION"],
                    record["_BUCKET"],
                    record["_TOTAL_BUCKETS"],
                    record["_FILE"],
                )
                for record in self._avro(path)
            ]
        return kept

    def entries(self, manifest_list: str) -> list[Entry]:
        return [
            entry
            for manifest in self.manifest_list(manifest_list)
            for entry in self.manifest(manifest["_FILE_NAME"])
        ]

    def live(self, snapshot: dict[str, Any]) -> dict[tuple[bytes, int, int, str], Entry]:
        """The files of a snapshot; asserts that every DELETE meets its ADD and no ADD comes twice."""
        live: dict[tuple[bytes, int, int, str], Entry] = {}
        for which in ("baseManifestList", "deltaManifestList"):
            for entry in self.entries(snapshot[which]):
                if entry.kind == ADD:
                    assert entry.identity not in live, f"added twice: {entry.identity}"
                    live[entry.identity] = entry
                else:
                    assert entry.identity in live, f"deleted and not live: {entry.identity}"
                    del live[entry.identity]
        return live

    def index_entries(self, snapshot: dict[str, Any]) -> list[dict[str, Any]]:
        """The records of a snapshot's index manifest; none without one."""
        name = snapshot.get("indexManifest")
        return [] if name is None else self._avro(f"manifest/{name}")

    def bucket_index(self, entry: dict[str, Any]) -> list[int]:
        """The hashes that an index file of a dynamic bucket lists."""
        data = self.storage.read(f"index/{entry['_FILE_NAME']}")
        return [number for (number,) in struct.iter_unpack(">i", data)]

    def _avro(self, path: str) -> list[dict[str, Any]]:
        kept = self._kept.get((path, 0))
        if kept is None:
            kept = self._kept[path, 0] = avro_records(self.storage.read(path))
        return kept

    # Data.

    def partition(self, stored: bytes, schema: StoredSchema) -> tuple[Plain, ...]:
        return decode_stored(stored, schema.types_of(schema.partition_keys))

    def data_path(self, entry: Entry, schema: StoredSchema) -> str:
        names = schema.partition_keys
        where = partition_path(
            self.partition(entry.partition, schema), names, schema.types_of(names)
        )
        bucket = "postpone" if entry.bucket == -2 else entry.bucket
        return f"{where}/bucket-{bucket}/{entry.name}".lstrip("/")

    def data(self, path: str) -> dict[str, list[Plain]]:
        """Every column of a data file as plain values."""
        kept = self._kept.get((path, 0))
        if kept is None:
            kept = self._kept[path, 0] = _columns(path, self.storage.read(path))
        return kept

    def schema_of(self, entry: Entry) -> StoredSchema:
        return self._schema(f"schema-{entry.file['_SCHEMA_ID']}")

    def reachable(self) -> dict[str, int | None]:
        """Every file that a root (snapshot, tag, changelog, of the table or a branch, trash) needs,
        with the size that is said of it.
        """
        found: dict[str, int | None] = {}
        for line in self.lines():
            for directory in ("schema", "consumer"):
                names = self._names(f"{line}{directory}")
                found |= {f"{line}{directory}/{name}": None for name in names}
            for hint in (
                "snapshot/LATEST",
                "snapshot/EARLIEST",
                "changelog/LATEST",
                "changelog/EARLIEST",
            ):
                if self.storage.exists(line + hint):
                    found[line + hint] = None
            for number, snapshot in self.snapshots(line).items():
                found[f"{line}snapshot/snapshot-{number}"] = None
                self._reach(snapshot, found)
            for number, changelog in self.changelogs(line).items():
                found[f"{line}changelog/changelog-{number}"] = None
                if changelog.get("changelogManifestList"):
                    self._reach_list(changelog, "changelogManifestList", found)
            for name, tag in self.tags(line).items():
                found[f"{line}tag/tag-{name}"] = None
                self._reach(tag, found, tells=False)  # nobody reads a changelog through a tag
        for name in self._names("trash"):
            if name.startswith("."):
                continue  # half of a record
            found[f"trash/{name}"] = None
            found |= dict.fromkeys(self._json(f"trash/{name}")["paths"])
        return found

    def _reach(
        self, snapshot: dict[str, Any], found: dict[str, int | None], *, tells: bool = True
    ) -> None:
        lists = ["baseManifestList", "deltaManifestList"]
        for which in [*lists, "changelogManifestList"] if tells else lists:
            if snapshot.get(which) is not None:
                self._reach_list(snapshot, which, found)
        for entry in self.live(snapshot).values():
            found[self.data_path(entry, self.schema_of(entry))] = entry.file["_FILE_SIZE"]
        if snapshot.get("indexManifest"):
            found[f"manifest/{snapshot['indexManifest']}"] = None
        for entry in self.index_entries(snapshot):
            found[f"index/{entry['_FILE_NAME']}"] = entry["_FILE_SIZE"]

    def _reach_list(
        self, snapshot: dict[str, Any], which: str, found: dict[str, int | None]
    ) -> None:
        name = snapshot[which]
        found[f"manifest/{name}"] = snapshot.get(f"{which}Size")
        for manifest in self.manifest_list(name):
            found[f"manifest/{manifest['_FILE_NAME']}"] = manifest["_FILE_SIZE"]
        if which == "changelogManifestList":
            for entry in self.entries(name):
                if entry.kind == ADD:
                    found[self.data_path(entry, self.schema_of(entry))] = entry.file["_FILE_SIZE"]


def _columns(path: str, data: bytes) -> dict[str, list[Plain]]:
    """A data file's columns, each a list of plain values; times only of Parquet files."""
    if path.endswith(".avro"):
        rows = avro_records(data)
        return {name: [_of_avro(row[name]) for row in rows] for name in rows[0]}
    source = pa.BufferReader(data)
    read = orc.ORCFile if path.endswith(".orc") else pq.ParquetFile
    table = read(source).read()
    return {name: to_plain(table.column(name)) for name in table.column_names}


def _of_avro(value: Any) -> Plain:
    if isinstance(value, date):
        return value.toordinal() - date(1970, 1, 1).toordinal()
    return NAN if value != value else value
