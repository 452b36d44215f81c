"""Table metadata of Iceberg (vN.metadata.json): which files it shows, which manifests stay, and the next version."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

from lsm_engine.base.errors import CorruptFileError, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.index_file import DELETION_VECTORS, IndexManifestEntry
from lsm_engine.format.manifest import ManifestEntry, PhysicalFile
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.iceberg.manifest import DATA, DELETES
from lsm_engine.iceberg.schema import (
    PARTITION_FIELD_START,
    JsonObject,
    iceberg_schema,
    ids_of,
    partition_spec,
)
from lsm_engine.options import core_options
from lsm_engine.options.modes import EntryKind
from lsm_engine.types.table_schema import KEY_ID_OFFSET, TableSchema

METADATA_DIRECTORY = "metadata"
VERSION_HINT = f"{METADATA_DIRECTORY}/version-hint.text"
SOURCE = "lsm.delta-manifest-list"
"""Property of a snapshot's summary: the delta manifest list of the Paimon snapshot that it shows, whose name is unique."""
BRANCH = "lsm.branch"
"""Property of the summary of a branch's snapshot: the name of the branch."""
BRANCHES_LEFT_OUT = "lsm.branches-left-out"
"""Property of the metadata: the branches that it does not show, each with the reason, as JSON."""
TAGS_LEFT_OUT = "lsm.tags-left-out"
"""Property of the metadata: the tags that it does not show, each with the reason, as JSON."""
TABLE_NAME = "lsm.table"
"""Property of the metadata: the name of the table."""
_BRANCH_IDS = 1 << 62
_SUFFIX = ".metadata.json"
_SNAPSHOT_LISTS = ("snapshots", "snapshot-log")
_encode = json.JSONEncoder(separators=(",", ":")).encode


def metadata_path(version: int) -> str:
    """Return the path of a version of the metadata, in the table's Iceberg directory."""
    return f"{METADATA_DIRECTORY}/v{version}{_SUFFIX}"


def version_of(name: str) -> int | None:
    """Return the version of a metadata file's name; None for other files."""
    digits = name.removeprefix("v").removesuffix(_SUFFIX)
    is_metadata = name == f"v{digits}{_SUFFIX}" and digits.isascii() and digits.isdigit()
    return int(digits) if is_metadata else None


@record
class TableMetadata:
    """One version of the metadata, as its JSON has it."""

    version: int
    members: JsonObject
    texts: dict[int, str] = field(default_factory=dict, compare=False, repr=False)
    """The JSON of its snapshots as far as it is known, by the identity of these: most are those of the version before."""

    @property
    def snapshots(self) -> list[JsonObject]:
        """The snapshots that readers can travel to: the table's own, oldest first, then those of branches."""
        snapshots: list[JsonObject] = self.members.get("snapshots") or []
        return snapshots

    @property
    def main_snapshots(self) -> list[JsonObject]:
        """The snapshots of the table itself, oldest first."""
        return [shown for shown in self.snapshots if BRANCH not in shown["summary"]]

    @property
    def branches(self) -> dict[str, int]:
        """The ids of the snapshots of branches, by the names of these."""
        refs: JsonObject = self.members.get("refs") or {}
        return {
            name: ref["snapshot-id"]
            for name, ref in refs.items()
            if ref["type"] == "branch" and name != "main"
        }

    @property
    def properties(self) -> dict[str, str]:
        """The properties; none of metadata of other writers, which may leave them out."""
        properties: dict[str, str] = self.members.get("properties") or {}
        return properties

    @property
    def branches_left_out(self) -> dict[str, str]:
        """Branches that are not shown, and why."""
        left_out: dict[str, str] = json.loads(self.properties.get(BRANCHES_LEFT_OUT, "{}"))
        return left_out

    @property
    def tags_left_out(self) -> dict[str, str]:
        """Tags that are not shown, and why."""
        left_out: dict[str, str] = json.loads(self.properties.get(TAGS_LEFT_OUT, "{}"))
        return left_out

    @property
    def current(self) -> JsonObject | None:
        """The snapshot that readers read; None of an empty table."""
        number = self.members.get("current-snapshot-id")
        return next((shown for shown in self.snapshots if shown["snapshot-id"] == number), None)

    @property
    def next_row_id(self) -> int:
        """The first row id that no row has (version 3)."""
        return int(self.members.get("next-row-id") or 0)

    def content(self) -> bytes:
        """Return the file."""
        members = {
            name: value for name, value in self.members.items() if name not in _SNAPSHOT_LISTS
        }
        texts = []
        for shown in self.snapshots:
            text = self.texts.get(id(shown))
            if text is None:
                text = self.texts[id(shown)] = _encode(shown)
            texts.append(text)
        logged = (
            f'{{"snapshot-id":{entry["snapshot-id"]},"timestamp-ms":{entry["timestamp-ms"]}}}'
            for entry in self.members["snapshot-log"]
        )
        lists = f'"snapshots":[{",".join(texts)}],"snapshot-log":[{",".join(logged)}]'
        return f"{_encode(members)[:-1]},{lists}}}".encode()


def read_metadata(data: bytes, version: int) -> TableMetadata:
    """Return the metadata in a file; raises CorruptFileError for what is none."""
    try:
        members: Any = json.loads(data)
    except ValueError:
        members = None
    needed = ("table-uuid", "location", "format-version", "schemas", "current-schema-id")
    if not isinstance(members, dict) or any(name not in members for name in needed):
        raise CorruptFileError(
            "a file of Iceberg metadata cannot be read; `lsm iceberg sync --rebuild` writes it anew",
            file=metadata_path(version),
        )
    return TableMetadata(version=version, members=members)


def shows(shown: JsonObject, snapshot: Snapshot | None) -> bool:
    """Whether a snapshot of the metadata shows this Paimon snapshot, and not one that had its id before."""
    return (
        snapshot is not None
        and shown["snapshot-id"] == snapshot.id
        and shown["summary"].get(SOURCE) == snapshot.delta_manifest_list
    )


@record
class FileTotals:
    """Counts of the data files and the deletes of a snapshot."""

    data_files: int = 0
    records: int = 0
    delete_files: int = 0
    deletes: int = 0


def snapshot_json(
    snapshot: Snapshot,
    *,
    parent_id: int | None,
    manifest_list: str,
    totals: FileTotals,
    row_ids: tuple[int, int] | None,
) -> JsonObject:
    """Return a snapshot of the metadata. `row_ids`: the first one that it assigns and how many (version 3)."""
    shown: JsonObject = {
        "snapshot-id": snapshot.id,
        "sequence-number": snapshot.id,
        "timestamp-ms": snapshot.time_millis,
        "manifest-list": manifest_list,
        "schema-id": snapshot.schema_id,
        "summary": {
            # Files of a commit's rows and of its compactions change together, which is an overwrite to readers.
            "operation": "overwrite" if parent_id is not None else "append",
            "total-data-files": str(totals.data_files),
            "total-records": str(totals.records),
            "total-delete-files": str(totals.delete_files),
            "total-position-deletes": str(totals.deletes),
            "total-equality-deletes": "0",
            SOURCE: snapshot.delta_manifest_list,
        },
    }
    if parent_id is not None:
        shown["parent-snapshot-id"] = parent_id
    if row_ids is not None:
        shown["first-row-id"], shown["added-rows"] = row_ids
    return shown


def branch_snapshot(shown: JsonObject, branch: str, schema_id: int) -> JsonObject:
    """Return the snapshot of a branch for the metadata of its table.

    Its id there is one of its own, as a branch and its table use the same ids for different snapshots.
    """
    digest = blake2b(shown["summary"][SOURCE].encode(), digest_size=8).digest()
    number = _BRANCH_IDS | (int.from_bytes(digest, "big") >> 2)
    summary = {**shown["summary"], BRANCH: branch}
    return {**shown, "snapshot-id": number, "schema-id": schema_id, "summary": summary}


@record
class ShownBranches:
    """The branches that the metadata shows: ids of snapshots by name, those that are not the table's own, and who is left out."""

    refs: Mapping[str, int] = field(default_factory=dict)
    snapshots: Sequence[JsonObject] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)


def kept_log(
    before: TableMetadata | None, location: str, most: int
) -> tuple[list[JsonObject], list[str]]:
    """Return the log of older versions that stay, and those that go.

    `location`: of the version before, which is the newest of them; empty if it is to be in no log.
    """
    if before is None:
        return [], []
    log: list[JsonObject] = list(before.members.get("metadata-log") or [])
    if location:
        updated = before.members.get("last-updated-ms", 0)
        log.append({"metadata-file": location, "timestamp-ms": updated})
    dropped = log[: max(0, len(log) - most)]
    return log[len(dropped) :], [entry["metadata-file"] for entry in dropped]


@record
class FaceState:
    """The content of the next version of the metadata.

    `snapshots`: those that stay, oldest first, the current one last. `tags`: snapshot ids by name. `schemas`: in
    Iceberg's JSON, by id.
    """

    location: str
    table_uuid: str
    format_version: int
    schema: TableSchema
    schemas: Mapping[int, JsonObject]
    snapshots: Sequence[JsonObject]
    tags: Mapping[str, int]
    next_row_id: int
    properties: Mapping[str, str]
    branches: ShownBranches
    tags_left_out: Mapping[str, str]


def next_metadata(
    state: FaceState,
    *,
    version: int,
    now_millis: int,
    log: Sequence[JsonObject],
    texts: Mapping[int, str] = MappingProxyType({}),
) -> TableMetadata:
    """Return the version of the metadata that shows a state.

    `log`: the older versions that stay (`kept_log`). `texts`: those of the version before.
    """
    schemas = [state.schemas[number] for number in sorted(state.schemas)]
    fields = partition_spec(state.schema)
    current = state.snapshots[-1] if state.snapshots else None
    refs: JsonObject = {
        name: {"snapshot-id": number, "type": "tag"} for name, number in state.tags.items()
    }
    refs |= {
        name: {"snapshot-id": number, "type": "branch"}
        for name, number in state.branches.refs.items()
    }
    snapshots = [*state.snapshots, *state.branches.snapshots]
    properties = dict(state.properties)
    for key, left_out in (
        (BRANCHES_LEFT_OUT, state.branches.left_out),
        (TAGS_LEFT_OUT, state.tags_left_out),
    ):
        if left_out:
            properties[key] = json.dumps(dict(left_out))
    members: JsonObject = {
        "format-version": state.format_version,
        "table-uuid": state.table_uuid,
        "location": state.location,
        "last-sequence-number": max((shown["sequence-number"] for shown in snapshots), default=0),
        "last-updated-ms": now_millis,
        "last-column-id": _last_column_id(state.schema, schemas),
        "current-schema-id": state.schema.id,
        "schemas": schemas,
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": fields}],
        "last-partition-id": PARTITION_FIELD_START - 1 + len(fields),
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": properties,
        "snapshots": snapshots,
        "snapshot-log": [
            {"snapshot-id": shown["snapshot-id"], "timestamp-ms": shown["timestamp-ms"]}
            for shown in state.snapshots
        ],
        "metadata-log": list(log),
        "refs": refs,
        "statistics": [],
        "partition-statistics": [],
    }
    if current is not None:
        members["current-snapshot-id"] = current["snapshot-id"]
        refs["main"] = {"snapshot-id": current["snapshot-id"], "type": "branch"}
    if state.format_version >= 3:
        members["next-row-id"] = state.next_row_id
    kept_texts = {id(shown): texts[id(shown)] for shown in snapshots if id(shown) in texts}
    return TableMetadata(version=version, members=members, texts=kept_texts)


def _last_column_id(schema: TableSchema, schemas: Iterable[JsonObject]) -> int:
    """Return the highest field id that a data file of a table may have. `schemas`: those of its snapshots.

    Columns that were dropped count, members of lists and maps, and the copies of key columns in files of a table with a
    key: ClickHouse refuses a file with a column of a higher id.
    """
    key_ids = (KEY_ID_OFFSET + schema.field(name).id for name in schema.primary_keys)
    shown_ids = (number for shown in schemas for number, _ in ids_of(shown["fields"]))
    return max(schema.highest_field_id, *key_ids, *shown_ids)


# -- Which files are shown -------------------------------------------------------------------------

ENTRIES_MAX = 500
"""Entries of a manifest: a commit that deletes one file writes the others of its manifest again."""


@record
class ShownLevels:
    """Levels whose files hold rows that are read without a merge.

    `first` and all below it; if `is_deepest`, the files of the deepest level of each bucket, where `first` is the last
    level.
    """

    first: int
    is_deepest: bool = False

    def __contains__(self, level: int) -> bool:
        """Whether files of a level are shown, as long as the number of levels stays."""
        return level == self.first if self.is_deepest else level >= self.first

    def files(self, live: Sequence[ManifestEntry]) -> list[ManifestEntry]:
        """Return the live files that are shown.

        Every merge of all of a bucket is on its deepest level, also where another number of levels was in force when it
        was written.
        """
        if not self.is_deepest:
            return [entry for entry in live if entry.file.level in self]
        deepest: dict[tuple[bytes, int], int] = {}
        for entry in live:
            bucket = (entry.partition, entry.bucket)
            deepest[bucket] = max(deepest.get(bucket, 1), entry.file.level)
        return [
            entry for entry in live if entry.file.level == deepest[entry.partition, entry.bucket]
        ]


def shown_levels(schema: TableSchema) -> ShownLevels:
    """Return the levels that are shown: all of a table without a key; all but 0 where no key is in two files of them.

    That is with deletion vectors, and with first-row. Else the last level, where the last full compaction of each
    bucket is.
    """
    if not schema.has_primary_key:
        return ShownLevels(first=0)
    if has_vectors(schema) or schema.options[core_options.MERGE_ENGINE].policy.keeps_first_row:
        return ShownLevels(first=1)
    return ShownLevels(first=schema.options.level_count - 1, is_deepest=True)


def has_vectors(schema: TableSchema) -> bool:
    """Whether rows of files may be deleted by vectors."""
    return schema.options[core_options.DELETION_VECTORS_ENABLED]


def format_version_of(schema: TableSchema) -> int:
    """Return the format version: `metadata.iceberg.format-version`, by default the lowest that holds the table."""
    configured = schema.options[core_options.METADATA_ICEBERG_FORMAT_VERSION]
    return configured or (3 if has_vectors(schema) else 2)


def option_problem(schema: TableSchema) -> tuple[str, str] | None:
    """Return an option that contradicts Iceberg metadata, and why; None if there is none."""
    options = schema.options
    if options[core_options.ICEBERG_COMPATIBILITY_ENABLED]:
        contradiction = _contradiction(schema)
        if contradiction is not None:
            return contradiction
    per_level = options[core_options.FILE_FORMAT_PER_LEVEL]
    formats = {options[core_options.FILE_FORMAT], *(form for _, form in per_level)}
    if not all(form.policy.has_field_ids for form in formats):
        return (
            core_options.FILE_FORMAT.key,
            "makes files that Iceberg metadata does not name; give 'parquet', for each level",
        )
    if schema.evolves_data:
        return (
            core_options.DATA_EVOLUTION_ENABLED.key,
            "keeps columns of a row in several files, which Iceberg metadata does not join",
        )
    return None


def _contradiction(schema: TableSchema) -> tuple[str, str] | None:
    """Return an option by which readers of Iceberg would see other rows than a scan, and why; None if there is none."""
    if not schema.options.writes_iceberg:
        return core_options.METADATA_ICEBERG_STORAGE.key, "is 'disabled'; give 'table-location'"
    if shown_levels(schema).is_deepest:
        return (
            core_options.DELETION_VECTORS_ENABLED.key,
            "is false: readers of Iceberg would see rows of full compactions alone; set it to true",
        )
    if has_vectors(schema) and schema.options[core_options.DELETION_VECTORS_MERGE_ON_READ]:
        return (
            core_options.DELETION_VECTORS_MERGE_ON_READ.key,
            "is true: a scan merges level 0, which readers of Iceberg cannot; set it to false",
        )
    return None


def file_problem(file: DataFileMeta, schema: TableSchema, changed_column: str | None) -> str | None:
    """Return why readers of Iceberg would misread a file, as far as its entry tells; None: they do not.

    `changed_column`: one whose type they do not read as that of the table.
    """
    if not file.file_name.endswith(".parquet"):
        return "is no Parquet file"
    if file.external_path is not None:
        return "lies outside of the table"
    if schema.has_primary_key and file.may_hold_deletes:
        return "holds deletes that wait for a compaction"
    if changed_column is not None:
        return f"holds column {changed_column!r} in a type that Iceberg does not read as its own"
    return None


# -- Which files change ----------------------------------------------------------------------------


@record
class FileChanges:
    """Files that the metadata is to show from now on, and those that it must show no more."""

    added: tuple[ManifestEntry, ...]
    moved: frozenset[PhysicalFile]
    """Those among them that may be shown already, at another level."""
    removed: frozenset[PhysicalFile]


def file_changes(deltas: Iterable[Iterable[ManifestEntry]], levels: ShownLevels) -> FileChanges:
    """Return what the entries of consecutive snapshots, oldest first, change in the files of some levels.

    A file that a compaction moves to another level is added and moved.
    """
    live: dict[PhysicalFile, ManifestEntry | None] = {}
    touched: set[PhysicalFile] = set()
    for delta in deltas:
        entries = [entry for entry in delta if entry.file.level in levels]
        # Within one snapshot a file may leave one level for another.
        for entry in entries:
            if entry.kind is EntryKind.DELETE:
                live[entry.physical_file] = None
                touched.add(entry.physical_file)
        for entry in entries:
            if entry.kind is EntryKind.ADD:
                live[entry.physical_file] = entry
    return FileChanges(
        added=tuple(entry for entry in live.values() if entry is not None),
        moved=frozenset(place for place in touched if live[place] is not None),
        removed=frozenset(place for place in touched if live[place] is None),
    )


# -- Which manifests change ------------------------------------------------------------------------


@record
class SnapshotManifests:
    """The manifests of a snapshot, and the first row id that none of its rows has."""

    rows: tuple[JsonObject, ...]
    next_row_id: int


@record
class ManifestChange:
    """The rows of a manifest list that stay, and the entries that stay of manifests that do not."""

    kept_rows: tuple[JsonObject, ...]
    kept_entries: tuple[JsonObject, ...]
    locations: frozenset[str]
    """Locations of all files that the manifests name."""


def keep_manifests(
    rows: Sequence[JsonObject],
    entries_of: Callable[[JsonObject], Sequence[JsonObject]],
    leaves: Callable[[JsonObject], bool],
) -> ManifestChange:
    """Return which manifests are kept when the files for which `leaves` is true are removed."""
    kept_rows: list[JsonObject] = []
    kept_entries: list[JsonObject] = []
    locations: set[str] = set()
    for row in rows:
        entries = entries_of(row)
        locations.update(entry["data_file"]["file_path"] for entry in entries)
        stay = [entry for entry in entries if not leaves(entry["data_file"])]
        if len(stay) == len(entries):
            kept_rows.append(row)
        else:
            kept_entries += stay
    return ManifestChange(
        kept_rows=tuple(kept_rows), kept_entries=tuple(kept_entries), locations=frozenset(locations)
    )


def rows_to_merge(
    rows: Sequence[JsonObject], new_count: int, *, least: int, most: int
) -> list[JsonObject]:
    """Return manifests that are small and to be written as one with the new entries.

    Small ones have less than half of ENTRIES_MAX. They are merged once there are `least` of them that fill a
    manifest together, and whenever there are `most`.
    """
    small = [row for row in rows if 2 * entry_count(row) < ENTRIES_MAX]
    total = sum(map(entry_count, small)) + new_count
    is_due = len(small) >= most or (len(small) >= least and total >= ENTRIES_MAX)
    return small if is_due else []


def entry_count(row: JsonObject) -> int:
    """Return how many files a manifest names."""
    return int(row["added_files_count"]) + int(row["existing_files_count"])


def vector_files(index_entries: Iterable[IndexManifestEntry]) -> dict[str, IndexManifestEntry]:
    """Return the index files of deletion vectors by name."""
    return {
        entry.index_file.file_name: entry
        for entry in index_entries
        if entry.index_file.index_type == DELETION_VECTORS
    }


def kept_snapshots(
    shown: Iterable[JsonObject], *, earliest: int, newest: int, tagged: Collection[int]
) -> list[JsonObject]:
    """Return the snapshots before the newest that readers can still travel to: live ones, and those with a tag."""
    return [
        snapshot
        for snapshot in shown
        if snapshot["snapshot-id"] < newest
        and (snapshot["snapshot-id"] >= earliest or snapshot["snapshot-id"] in tagged)
    ]


def chunks(entries: Sequence[JsonObject]) -> list[Sequence[JsonObject]]:
    """Cut entries into those of one manifest each."""
    return [entries[i : i + ENTRIES_MAX] for i in range(0, len(entries), ENTRIES_MAX)]


def totals_of(rows: Sequence[JsonObject]) -> FileTotals:
    """Return the counts of all that the rows of a manifest list name."""

    def total(content: int) -> tuple[int, int]:
        chosen = [row for row in rows if row["content"] == content]
        counts = (row["added_rows_count"] + row["existing_rows_count"] for row in chosen)
        return sum(map(entry_count, chosen)), sum(counts)

    (files, records), (delete_files, deletes) = total(DATA), total(DELETES)
    return FileTotals(data_files=files, records=records, delete_files=delete_files, deletes=deletes)


# -- Which state a version shows --------------------------------------------------------------------


def branches_as_before(
    before: TableMetadata, history: Sequence[JsonObject]
) -> ShownBranches | None:
    """Return the branches as a version shows them, for one that shows a newer snapshot of the table.

    None if a branch has to be looked at again: it showed a snapshot of the table that has expired there.
    """
    own = [shown for shown in before.snapshots if BRANCH in shown["summary"]]
    ids = {shown["snapshot-id"] for shown in (*history, *own)}
    if not ids.issuperset(before.branches.values()):
        return None
    return ShownBranches(refs=before.branches, snapshots=own, left_out=before.branches_left_out)


def require_alike(branch: TableSchema, main: TableSchema) -> None:
    """Raise UnsupportedError unless the columns and levels of a branch are read as those of its table."""
    columns, main_columns = (iceberg_schema(schema)["fields"] for schema in (branch, main))
    if columns != main_columns or branch.partition_keys != main.partition_keys:
        raise UnsupportedError("its columns differ from those of the table")
    if shown_levels(branch) != shown_levels(main) or has_vectors(branch) != has_vectors(main):
        raise UnsupportedError("its options have other files read without a merge")


def directory_of(location: str) -> str:
    """Return the directory of a file."""
    return location.rpartition("/")[0]


def deletes_name(location: str) -> str:
    """Return what a file of deleted rows is named for: an index file, or the rows that it deletes."""
    return location.rpartition("/")[2].removeprefix("dv-").partition(".")[0]


def deletes_key(file: JsonObject) -> str:
    """Return the key of a file of deleted rows, by its `data_file`, as `MetadataSync.deleted_rows` has it."""
    if file["file_format"] == "PUFFIN":
        return deletes_name(file["file_path"])
    return str(file["referenced_data_file"])


def shows_state(before: TableMetadata, state: FaceState) -> bool:
    """Whether a version shows a state already."""
    after = next_metadata(
        state,
        version=before.version,
        now_millis=before.members.get("last-updated-ms", 0),
        log=before.members.get("metadata-log") or [],
    )
    return after.members == before.members


def uuid_of(content: bytes) -> str:
    """Return a UUID that is the same for the same content."""
    text = blake2b(content, digest_size=16).hexdigest()
    return "-".join((text[:8], text[8:12], f"8{text[13:16]}", f"8{text[17:20]}", text[20:]))
