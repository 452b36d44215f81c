"""One open table: its schema, its stores, and the facts that several verbs ask for."""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from importlib import import_module
from typing import Any

import pyarrow as pa

from lsm_engine.base.errors import CommitUnknownError, CorruptFileError, LsmError, StorageError
from lsm_engine.filter.partition import manifests_in
from lsm_engine.format.index_file import IndexFileMeta, IndexManifestEntry, VectorPlace
from lsm_engine.format.manifest import Bucket, BucketScope, ManifestEntry, ManifestFileMeta
from lsm_engine.format.manifest_file import (
    WITHOUT_STATS,
    is_foreign_index,
    refuse_foreign_indexes,
)
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.metadata.changelogs import ChangelogStore
from lsm_engine.metadata.commit_identifiers import CommitIdentifierStore
from lsm_engine.metadata.consumers import ConsumerStore
from lsm_engine.metadata.manifests import ManifestStore, MappedManifests
from lsm_engine.metadata.schemas import SchemaStore, TableIdentity
from lsm_engine.metadata.snapshots import SnapshotStore, likely_documents
from lsm_engine.metadata.tags import TagStore
from lsm_engine.options import core_options
from lsm_engine.options.modes import CommitKind, EntryKind
from lsm_engine.options.table_options import TableOptions
from lsm_engine.planning.commit import copied_lists, lists_to_fetch, named_manifests
from lsm_engine.planning.proposal import CommitStep
from lsm_engine.planning.snapshot_chain import adds_up, follows
from lsm_engine.storage.clock import Clock, IdSource
from lsm_engine.storage.file_io import Batching, FileIO
from lsm_engine.storage.paths import SCHEMA_PREFIX, TablePaths
from lsm_engine.table.bucket_context import BucketContext, delete_quietly, key_order_of
from lsm_engine.table.components import Components, LocalExecutor, Removal, TableListener
from lsm_engine.table.deletion_vectors import (
    places_by_bucket,
    vector_files_by_bucket,
)
from lsm_engine.table.live_files import MANY_FILES, live_entries, live_rows
from lsm_engine.types.schema_changes import SchemaChange
from lsm_engine.types.table_schema import TableSchema

log = logging.getLogger(__name__)
_FEW_BUCKETS = 500  # a listing has a thousand entries a page


class PublishedSchema:
    """The newest schema that commits through handles of one table have published; None before the first one."""

    schema: TableSchema | None = None


class PlannedSchema:
    """A schema that the first commit through any session of it publishes (commit).

    It was made of `known_schema`, the schema in force, by `changes`; `check` looks again whether they suit the rows, as
    others may have committed since the snapshot `base`.
    """

    def __init__(
        self,
        known_schema: TableSchema,
        changes: Sequence[SchemaChange],
        base: Snapshot | None,
        check: Callable[[], object],
    ) -> None:
        self.known_schema, self.changes, self.base, self.check = known_schema, changes, base, check
        self.published: TableSchema | None = None
        """The schema that is there, once it is."""
        self.shared = PublishedSchema()
        """Where the handles of the table that planned it look."""

    def is_there(self, schema: TableSchema) -> None:
        """Keep the schema that a commit has published."""
        self.published = self.shared.schema = schema


class TableSession:
    """One open table, shared by all operations on it. Cheap to make; caches only what never changes."""

    def __init__(
        self, name: str, components: Components, schema: TableSchema, *, branch: str = ""
    ) -> None:
        self.name = name
        self.components = components
        self.schema = schema
        self.options: TableOptions = schema.options
        data_directory = self.options[core_options.DATA_FILE_PATH_DIRECTORY] or ""
        self.paths = TablePaths(branch_name=branch, data_directory=data_directory)
        self.file_io: FileIO = components.file_io
        """Storage, rooted at the table's directory."""
        self.clock: Clock = components.clock
        self.ids: IdSource = components.ids
        self.planned: PlannedSchema | None = None
        """How the schema came to be, where a commit publishes it."""
        self.planned_reads: dict[str, tuple[object, Any]] = {}
        """The last reads, by snapshot and request, with their plans or files (read/scan)."""

    @staticmethod
    def from_context(context: BucketContext) -> "TableSession":
        """Return the table of work on buckets, which has no name there, for one thread."""
        components = Components(
            file_io=context.file_io,
            storage=context.storage,
            clock=context.clock,
            ids=context.ids,
            executor=LocalExecutor(threads=1),
        )
        return TableSession("", components, context.schema, branch=context.paths.branch_name)

    @cached_property
    def readable_columns(self) -> pa.Schema:
        """The columns that a read may name: the table's, and `_ROW_ID` and `_SEQUENCE_NUMBER`."""
        names = self.schema.tracking_names
        tracking = [pa.field(name, pa.int64(), nullable=False) for name in names]
        return pa.schema([*self.schema.arrow, *tracking])

    @cached_property
    def filter_columns(self) -> pa.Schema:
        """The same columns as filters see them."""
        return pa.schema([*self.schema.compared, *list(self.readable_columns)[len(self.schema) :]])

    @cached_property
    def snapshots(self) -> SnapshotStore:
        """The snapshots of the table, or of the branch."""
        return SnapshotStore(self.file_io, self.paths, self.manifests.expect, self.identity.require)

    @cached_property
    def manifests(self) -> ManifestStore:
        """Manifests and their lists, of all branches."""
        file_io, paths = self.file_io, self.paths
        mapped = MappedManifests(
            paths,
            max_bytes=self.options[core_options.MANIFEST_CACHE_MAX_DISK_SIZE],
            is_remote=file_io.facts.is_remote,
        )
        store = ManifestStore(
            file_io, paths, table=self.name, tracks_rows=self.schema.tracks_rows, mapped=mapped
        )
        store.leaves_out = bool(self.options.unread_columns)
        store.reads_external = self.options[core_options.DATA_FILE_EXTERNAL_PATHS] is not None
        return store

    @cached_property
    def schemas(self) -> SchemaStore:
        """Every schema that files were written with."""
        return SchemaStore(self.file_io, self.paths)

    @cached_property
    def identity(self) -> TableIdentity:
        """Whether the directory still holds this table."""
        return TableIdentity(self.schemas, self.name, lambda: self.known_schema)

    @cached_property
    def tags(self) -> TagStore:
        """Named snapshots."""
        return TagStore(self.file_io, self.paths, self.identity.require)

    @cached_property
    def changelogs(self) -> ChangelogStore:
        """Changelogs that outlive their snapshots."""
        return ChangelogStore(self.file_io, self.paths)

    @cached_property
    def consumers(self) -> ConsumerStore:
        """Named readers and how far they are."""
        return ConsumerStore(self.file_io, self.paths, self.ids, self.identity)

    @cached_property
    def commit_identifiers(self) -> CommitIdentifierStore:
        """The last numbered commits of commit users."""
        return CommitIdentifierStore(self.file_io, self.paths, self.snapshots)

    def storage_time(self, *, deletes: bool = False) -> int:
        """Return the time by the storage's clock, in milliseconds; raises StorageError.

        Most storage stamps a file for that. Where a reader may not write, it is this machine's time,
        unless something is deleted by it (`deletes`).
        """
        try:
            return self.file_io.now_millis()
        except StorageError:
            # Where files are deleted by age, a clock of another machine could make young files look
            # old.
            if deletes:
                raise
            return self.clock.now_millis()

    @cached_property
    def key_order(self) -> Callable[[bytes], bytes] | None:
        """How stored keys compare; None for tables without a primary key."""
        return key_order_of(self.schema)

    def context(self, schema_ids: Iterable[int] = ()) -> BucketContext:
        """Return what work on buckets needs, with the schemas that its files were written with."""
        older = set(schema_ids) - {self.schema.id}
        schemas = {number: self.schemas.load(number) for number in older}
        return BucketContext(
            file_io=self.file_io,
            paths=self.paths,
            schema=self.schema,
            schemas={**schemas, self.schema.id: self.schema},
            clock=self.clock,
            ids=self.ids,
            storage=self.components.storage,
        )

    def with_schema(self, schema: TableSchema) -> "TableSession":
        """Return the table as another schema sees it, one that is published."""
        return TableSession(self.name, self.components, schema, branch=self.paths.branch_name)

    def rewriting(self, schema_ids: Iterable[int]) -> "TableSession":
        """Return the table by a schema that has every column of some files, to write their rows anew.

        Others may have altered the table since it was opened. Written by the schema of then, the rows would
        lose the columns that were added.
        """
        return self if max(schema_ids, default=0) <= self.schema.id else self.newest()

    def newest(self) -> "TableSession":
        """Return the table by the schema in force, to write rows anew of which some columns change.

        Asked after the state that is read: each of its files has a schema that is there by then. Raises UnsupportedError
        for an option of that schema that this version could not write by.
        """
        if self.is_planned:
            return self  # a commit refuses it where others altered the table first
        # Ids have no gaps, so that the next one is enough: a listing may be old, and costs more on a remote store.
        if not self.file_io.exists(self.paths.schema_file(self.schema.id + 1)):
            return self
        newest = self.schemas.latest()
        if newest is None or newest.id <= self.schema.id:
            return self
        newest.options.require_writable()
        # Options that this session has beside the stored ones go on.
        stored = self.schemas.load(self.schema.id).options.texts
        own = {key: text for key, text in self.options.texts.items() if stored.get(key) != text}
        return self.with_schema(replace(newest, options=newest.options.with_texts(own)))

    def with_components(self, components: Components) -> "TableSession":
        """Return the same table, worked on by other means."""
        return self._like(components, self.schema)

    def with_options(self, options: TableOptions) -> "TableSession":
        """Return the same table by other options, which are not stored."""
        return self._like(self.components, replace(self.schema, options=options))

    def _like(self, components: Components, schema: TableSchema) -> "TableSession":
        session = TableSession(self.name, components, schema, branch=self.paths.branch_name)
        session.planned = self.planned  # shared: whichever commits first publishes it for all
        return session

    @property
    def is_planned(self) -> bool:
        """Whether the schema has yet to be published."""
        return self.planned is not None and self.planned.published is None

    @property
    def schema_checksum(self) -> int | None:
        """The checksum of the schema's file; None while it is planned."""
        published = self.planned.published if self.planned else self.schema
        return published.checksum if published else None

    @property
    def known_schema(self) -> TableSchema:
        """The schema whose file shows that this is still the table."""
        return self.schema if self.planned is None else self.planned.known_schema

    @property
    def in_force(self) -> "TableSession":
        """The table by the schema that is published."""
        return self.with_schema(self.known_schema) if self.is_planned else self

    def with_level_0(self) -> "TableSession":
        """Return the table as its newest rows are, those in level 0 among them.

        Readers of a table with deletion vectors do not see level 0 before it is compacted. Who writes what they
        found there would undo what others have written since.
        """
        options = self.options
        if not options[core_options.DELETION_VECTORS_ENABLED]:
            return self
        # Merging while reading shows level 0 too, without another code path.
        merging = {core_options.DELETION_VECTORS_MERGE_ON_READ.key: "true"}
        return self.with_options(options.with_texts(merging))

    def gathered(self, paths: Iterable[str] = ()) -> "TableSession":
        """Return the table as it is now: on a remote store what maintenance reads is fetched in batches.

        That is snapshots, tags, consumers, changelogs, branches and the trash. `paths`: of documents
        among them that are known, for one round less; by default those that this process, or LATEST, knows.
        """
        if not isinstance(self.file_io, Batching):
            return self
        ours = self.paths
        directories = (
            ours.snapshot_directory,
            ours.tag_directory,
            ours.consumer_directory,
            ours.changelog_directory,
            ours.branch_directory,
            ours.trash_directory,
        )
        file_io = self.file_io.gathered(
            directories,
            set(paths) or likely_documents(self.file_io, ours),
            below="" if self._has_few_directories() else None,
        )
        return self._on(file_io)

    def asking_anew(self, *directories: str) -> "TableSession":
        """Return the table as it is now, whatever was gathered before; some directories are fetched in batches."""
        if not isinstance(self.file_io, Batching):
            return self
        file_io = self.file_io.gathered(())
        if directories and isinstance(file_io, Batching):
            file_io = file_io.gathered(directories)
        return self._on(file_io)

    def _on(self, file_io: FileIO) -> "TableSession":
        session = self.with_components(replace(self.components, file_io=file_io))
        # Manifests never change, so that the cached ones are good for the new session.
        session.manifests = self.manifests
        return session

    def _has_few_directories(self) -> bool:
        """Whether a listing of the table's directory takes one request: no partitions, and few buckets."""
        if self.paths.branch_name or self.schema.partition_keys:
            return False
        return 0 < self.schema.bucket_count <= _FEW_BUCKETS

    def as_of(self, snapshot: Snapshot) -> "TableSession":
        """Return the table with the columns and options that it had when a snapshot was made.

        Raises UnsupportedError for an option of that time that this version cannot read.
        """
        if snapshot.schema_id == self.schema.id:
            return self
        schema = self.schemas.load(snapshot.schema_id)
        schema.options.require_readable()
        return self.with_schema(schema)

    def newest_of_writer(self) -> Snapshot | None:
        """Return what a writer builds on: the newest snapshot, or on a remote store what was it a moment ago."""
        return self.snapshots.latest_of_writer(
            lambda snapshot: self._is_of_schema(snapshot) is True
        )

    def _is_of_schema(self, snapshot: Snapshot) -> bool | None:
        """Whether a snapshot keeps the checksum of this schema's file; None where one has none."""
        expected = snapshot.checksum_of(f"{SCHEMA_PREFIX}{self.schema.id}")
        actual = self.schema_checksum
        return None if expected is None or actual is None else expected == actual

    def check_schema(self, snapshot: Snapshot) -> None:
        """Raise where a snapshot keeps another checksum of this schema's file.

        NotFoundError: the table was dropped and made again. CorruptFileError: the file is damaged.
        """
        if self._is_of_schema(snapshot) is False:
            # Raises first for a table that was made anew: its schema is whole, and another one.
            self.identity.require(snapshot)
            raise CorruptFileError(
                "the schema is not the one that the snapshot was made with: its checksum differs, and the "
                "file is damaged: restore it, or run verify to see what depends on it",
                file=self.paths.schema_file(self.schema.id),
                snapshot_id=snapshot.id,
            )

    def manifest_metas(self, snapshot: Snapshot) -> list[ManifestFileMeta]:
        """Return the manifests that make up a snapshot's whole state, oldest first."""
        self.check_schema(snapshot)
        self.manifests.expect([*lists_to_fetch(snapshot), *named_manifests(snapshot)])
        return [
            *self.manifest_list(snapshot, snapshot.base_manifest_list),
            *self.manifest_list(snapshot, snapshot.delta_manifest_list),
        ]

    def manifest_list(self, snapshot: Snapshot, name: str) -> list[ManifestFileMeta]:
        """Return what a manifest list that a snapshot names holds, its checksum compared."""
        copies = partial(copied_lists, snapshot)
        return self.manifests.read_list(name, snapshot.checksum_of(name), copies)

    def list_entries(
        self, snapshot: Snapshot, name: str, *, min_level: int = 0
    ) -> list[ManifestEntry]:
        """Return the entries of all manifests of a list that a snapshot names.

        `min_level`: manifests whose files are all below it are passed over.
        """
        metas = self.manifest_list(snapshot, name)
        return [
            entry
            for meta in metas
            if meta.max_level is None or meta.max_level >= min_level
            for entry in self.manifests.read_entries(meta)
        ]

    def live_entries(
        self,
        snapshot: Snapshot,
        holds: Callable[[bytes, int], bool] | None = None,
        columns: Collection[str] | None = None,
    ) -> list[ManifestEntry]:
        """Return a snapshot's live files, those in buckets that `holds(partition, bucket)` or all.

        Of a BucketScope no more manifests are read than may name its files. `columns`: only what these hold is
        filled in.
        """
        metas: Sequence[ManifestFileMeta] = self.manifest_metas(snapshot)
        if isinstance(holds, BucketScope):
            metas = manifests_in(metas, holds, self.schema.select(self.schema.partition_keys))
        return live_entries(self.manifests, metas, holds, columns)

    def live_rows(self, snapshot: Snapshot) -> pa.Table | None:
        """Return a snapshot's live files as columns (table/live_files); None if there are none.

        Of very many files without statistics, which are most of the bytes.
        """
        metas = self.manifest_metas(snapshot)
        count = sum(meta.added_file_count - meta.deleted_file_count for meta in metas)
        columns = WITHOUT_STATS if count >= MANY_FILES else None
        return live_rows(self.manifests, metas, columns=columns)

    def index_entries(self, snapshot: Snapshot) -> list[IndexManifestEntry]:
        """Return the index files of a snapshot: deletion vectors and hash indexes.

        Raises UnsupportedError, naming it, for one of another kind: who writes would have to keep it right.
        """
        entries = self.all_indexes(snapshot)
        refuse_foreign_indexes(entries, file_name=snapshot.index_manifest or "", table=self.name)
        return entries

    def all_indexes(self, snapshot: Snapshot) -> list[IndexManifestEntry]:
        """Return the index files of a snapshot, of whatever kind."""
        name = snapshot.index_manifest
        self.check_index_manifest(snapshot)
        return [] if name is None else self.manifests.read_index(name, snapshot.checksum_of(name))

    def readable_indexes(self, snapshot: Snapshot) -> list[IndexManifestEntry]:
        """Return the index files of a snapshot that readers need; those of kinds of other clients are passed over."""
        entries = [entry for entry in self.all_indexes(snapshot) if not is_foreign_index(entry)]
        refuse_foreign_indexes(entries, file_name=snapshot.index_manifest or "", table=self.name)
        return entries

    def check_index_manifest(self, snapshot: Snapshot) -> None:
        """Raise CorruptFileError where a snapshot lacks the index manifest that it has to have.

        It is handed on from snapshot to snapshot; only an overwrite may drop it.
        """
        may_lack = snapshot.commit_kind is CommitKind.OVERWRITE
        if snapshot.index_manifest is not None or may_lack or not self.schema.may_have_indexes:
            return
        try:
            before = self.snapshots.find(snapshot.id - 1)
        except LsmError:
            return  # a reader of that one gets the error
        if before is None or before.index_manifest is None:
            return
        if follows(snapshot, before) and adds_up(snapshot, before):
            raise CorruptFileError(
                "a snapshot has lost its index manifest, which the one before it names: deleted rows "
                "would come back; restore the snapshot's file, or roll back",
                file=self.paths.snapshot_file(snapshot.id),
                snapshot_id=snapshot.id,
                index_manifest=before.index_manifest,
            )

    def vector_files(self, snapshot: Snapshot) -> dict[Bucket, tuple[IndexFileMeta, ...]]:
        """Return the index files of deletion vectors of each bucket that has any."""
        return vector_files_by_bucket(self.readable_indexes(snapshot))

    def vector_places(self, snapshot: Snapshot) -> dict[Bucket, dict[str, VectorPlace]]:
        """Return where each bucket's deletion vectors are, by data file; see table/deletion_vectors."""
        return places_by_bucket(self.readable_indexes(snapshot))

    def data_path(self, entry: ManifestEntry) -> str:
        """Return where a data or changelog file lies: below the table's directory, or its place outside of that."""
        return entry.file.external_path or self.context().data_file(
            entry.partition, entry.bucket, entry.file.file_name
        )

    def data_paths(self, entry: ManifestEntry) -> list[str]:
        """Return where a data or changelog file lies, and the files beside it that belong to it.

        None for a file outside of the table's directory: other clients write and delete those.
        """
        if entry.file.external_path is not None:
            return []
        context = self.context()
        names = entry.file.file_names
        return [context.data_file(entry.partition, entry.bucket, name) for name in names]

    def staged_paths(self, step: CommitStep) -> list[str]:
        """Return the files that were written for a step and nothing else may name yet."""
        moved = {entry.file.file_name for entry in step.delta if entry.kind is EntryKind.DELETE}
        added = (entry for entry in step.delta if entry.kind is EntryKind.ADD)
        new_entries = [entry for entry in added if entry.file.file_name not in moved]
        staged = [
            path for entry in (*new_entries, *step.changelog) for path in self.data_paths(entry)
        ]
        new = (change for change in step.index_changes if change.kind is EntryKind.ADD)
        return staged + [self.paths.index_file(change.index_file.file_name) for change in new]

    def delete_staged(self, step: CommitStep) -> None:
        """Delete a step's files, which are known not to be visible."""
        self.delete_quietly(self.staged_paths(step))

    def delete_quietly(self, paths: Iterable[str]) -> None:
        """Delete files that nothing names. One that cannot be deleted is an orphan, no error."""
        delete_quietly(self.file_io, paths)

    def publish_schema(self, schema: TableSchema) -> TableSchema | None:
        """Make a version of the schema the one in force, and return it as its file is; None if its id is taken.

        Raises NotFoundError, the file taken back, where the directory holds another table by now: its rows do not
        suit the schema. Raises CommitUnknownError where the table was renamed or dropped with the file, or the storage
        does not answer.
        """
        published = self.schemas.publish(schema)
        if published is None:
            return None
        try:
            is_dropped = self.identity.is_dropped()
        except StorageError as cause:
            # The schema stands there: "retry" alone would hide that.
            raise CommitUnknownError(
                f"schema {schema.id} was published, and the storage does not report whether the table is still there; "
                "look before trying again",
                table=self.name,
                reason=str(cause),
            ) from cause
        if is_dropped:
            if self.schemas.take_back(schema):
                raise self.identity.dropped()
            raise self.identity.taken_along(f"schema {schema.id}")
        self.notify_altered(published)
        return published

    def notify_altered(self, schema: TableSchema) -> None:
        """Notify every listener of a schema that was published, unless it is that of a branch."""
        if not self.paths.branch_name:
            self.notify_listeners(lambda listener: listener.altered(self.name, schema))

    def notify_removing(self) -> None:
        """Notify every listener that maintenance is about to remove something; the error of one stops it."""
        for listener in self.components.listeners:
            listener.removing(self.name)

    def notify(self, event: Callable[[TableListener], None]) -> None:
        """Notify every listener, then the Iceberg metadata; a failure is logged and undoes nothing."""
        self.notify_listeners(event)
        self.follow_iceberg()

    def notify_removed(self, kind: str, reason: str, **removed: Any) -> None:
        """Notify listeners what maintenance removed, and why; `removed`: further members of a `Removal`."""
        if not self.components.listeners:
            return
        removal = Removal(
            removal_id=self.ids.new_id(),
            kind=kind,
            reason=reason,
            at_millis=self.clock.now_millis(),
            **removed,
        )
        self.notify(lambda listener: listener.removed(self.name, removal))

    def follow_iceberg(self, *, with_branches: bool = False) -> None:
        """Have the table's Iceberg metadata, if there is any, show the newest state; a failure is logged.

        `with_branches`: that of its branches as well, as after a commit to one.
        """
        # A branch has options of its own, but the metadata is its table's, which may have got it later.
        if self.options.writes_iceberg or self.paths.branch_name:
            # Imported on use: few tables have such metadata, and every process would pay for the import.
            import_module("lsm_engine.table.iceberg").follow(self, with_branches=with_branches)

    def notify_listeners(self, event: Callable[[TableListener], None]) -> None:
        """Notify every listener; the failure of one is logged and undoes nothing."""
        for listener in self.components.listeners:
            try:
                event(listener)
            except LsmError as error:  # it has all that there is to know, in one line
                log.error("a listener of table %s failed: %s", self.name, error)
            except Exception:  # a listener is a guest: whatever it raises, the commit stands
                log.exception("a listener of table %s failed", self.name)
