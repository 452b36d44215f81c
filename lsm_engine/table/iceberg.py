"""Iceberg metadata of a table: written after a snapshot is published, from that of before and what changed since.

It decides and fails no commit. What a crash or another client's commits left behind, the next call catches up
(docs/decisions/0069).
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from hashlib import blake2b
from itertools import accumulate, repeat
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from cachetools import LRUCache

from lsm_engine.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CorruptFileError,
    ErrorKind,
    InvalidOptionError,
    LsmError,
    NotFoundError,
    UnsupportedError,
)
from lsm_engine.data_files.columns import FIELD_ID, field_ids, file_schema
from lsm_engine.format.deletion_vector import DeletionVector
from lsm_engine.format.index_file import IndexManifestEntry
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.iceberg.manifest import (
    DATA,
    DELETES,
    DeletesFile,
    LocatedFile,
    added_entry,
    data_files,
    delete_files,
    existing_entry,
    layout_of,
    list_row,
    manifest,
    manifest_list,
    position_delete_file,
    position_deletes,
    puffin_file,
    read_records,
)
from lsm_engine.iceberg.metadata import (
    BRANCH,
    METADATA_DIRECTORY,
    SOURCE,
    TABLE_NAME,
    VERSION_HINT,
    FaceState,
    FileChanges,
    ManifestChange,
    ShownBranches,
    SnapshotManifests,
    TableMetadata,
    branch_snapshot,
    branches_as_before,
    chunks,
    deletes_name,
    directory_of,
    file_changes,
    file_problem,
    format_version_of,
    has_vectors,
    keep_manifests,
    kept_log,
    kept_snapshots,
    metadata_path,
    next_metadata,
    option_problem,
    read_metadata,
    require_alike,
    rows_to_merge,
    shown_levels,
    shows,
    shows_state,
    snapshot_json,
    totals_of,
    uuid_of,
    vector_files,
    version_of,
)
from lsm_engine.iceberg.schema import (
    JsonObject,
    PlainValue,
    changed_column,
    has_lists_or_maps,
    iceberg_schema,
    partition_tuples,
    renamed_column,
)
from lsm_engine.metadata.manifests import DeletionVectorStore
from lsm_engine.options import core_options
from lsm_engine.planning.names import MAIN_BRANCH
from lsm_engine.planning.tags import is_lock
from lsm_engine.storage.bulk import results_of
from lsm_engine.storage.file_io import FileIO, FileStatus
from lsm_engine.storage.local import LocalFileIO
from lsm_engine.storage.location import DATABASE_SUFFIX
from lsm_engine.storage.warehouse import open_directory, undurable
from lsm_engine.table.branches import branches, on_branch
from lsm_engine.table.bucket_context import BucketContext
from lsm_engine.table.session import TableSession
from lsm_engine.types.table_schema import TableSchema

log = logging.getLogger(__name__)
_STORAGE = core_options.METADATA_ICEBERG_STORAGE
_LOCATION = core_options.METADATA_ICEBERG_STORAGE_LOCATION
_RACES = 10
_LEVEL = "lsm.level"
_SNAPSHOTS_MAX = 100
"""Snapshots that are followed one by one; of more the whole state is read."""
_SWEEP_AGE_MILLIS = 3_600_000
"""Files of the metadata that no version names are younger while a process writes them."""


# -- Store of the metadata's files ------------------------------------------------------------------

_HINT_BYTES = 64
_KEPT_ENTRIES = 50_000


def _weight(entries: list[JsonObject]) -> int:
    return 1 + len(entries)


def _size(version: tuple[bytes, TableMetadata]) -> int:
    return len(version[0])


_decoded: LRUCache[str, list[JsonObject]] = LRUCache(_KEPT_ENTRIES, getsizeof=_weight)
"""Entries of manifests, and rows of lists, by location: these files never change, and have names of their own."""
_KEPT_NAMES = 500_000
_location_hashes: LRUCache[str, frozenset[int]] = LRUCache(_KEPT_NAMES, getsizeof=len)
"""Hashes of the locations that manifests name: which manifest names a file is known without its entries."""
_newest: LRUCache[str, tuple[bytes, TableMetadata]] = LRUCache(16 << 20, getsizeof=_size)
"""The newest version that was read or written, and its file, by the location of a table's metadata."""
_decoded_lock = Lock()


class IcebergStore:
    """The Iceberg metadata of one table. `location`: of the root of `file_io`, as readers name it."""

    def __init__(self, file_io: FileIO, location: str) -> None:
        self.file_io = file_io
        self.location = location

    def location_of(self, path: str) -> str:
        """Return what readers call a file below the root."""
        return f"{self.location}/{path}"

    def path_of(self, location: str) -> str:
        """Return the path of a file that metadata names; CorruptFileError for one that lies elsewhere."""
        path = location.removeprefix(f"{self.location}/")
        if path == location or not path.startswith(f"{METADATA_DIRECTORY}/"):
            raise CorruptFileError(
                "Iceberg metadata names a file outside of its directory; `lsm iceberg sync --rebuild` writes it anew",
                file=location,
            )
        return path

    # Versions.

    def hinted_version(self) -> int | None:
        """Return the version that the hint names; None without a hint that is a number."""
        try:
            text = self.file_io.read(VERSION_HINT, length=_HINT_BYTES).decode("ascii", "replace")
        except NotFoundError:
            return None
        return int(text) if text.strip().isdigit() else None

    def newest_version(self) -> int:
        """Return the greatest version there is a file of, from a listing; 0 without any."""
        return max((version_of(status.name) or 0 for status in self.files()), default=0)

    def current(self) -> TableMetadata | None:
        """Return the version that readers read; None without one. Raises CorruptFileError for damage."""
        version = self.hinted_version()
        if version is None:
            return None
        data = self.file_io.read(metadata_path(version))
        with _decoded_lock:
            known_data, newest = _newest.get(self.location, (b"", None))
        # Most often this process has written it. It is read in any case: the file may be another table's of this name.
        if newest is not None and newest.version == version and known_data == data:
            return newest
        return self._keep_newest(data, read_metadata(data, version))

    def _keep_newest(self, data: bytes, metadata: TableMetadata) -> TableMetadata:
        with _decoded_lock, suppress(ValueError):  # too large to keep
            _newest[self.location] = data, metadata
        return metadata

    def version(self, version: int) -> TableMetadata:
        """Return one version; raises NotFoundError and CorruptFileError."""
        return read_metadata(self.file_io.read(metadata_path(version)), version)

    def publish(self, metadata: TableMetadata) -> bool:
        """Write a version and name it in the hint, unless a newer one is named; False if the version is taken."""
        data = metadata.content()
        if not self.file_io.publish(metadata_path(metadata.version), data):
            self._finish(metadata.version)
            return False
        self._keep_newest(data, metadata)
        self._name(metadata.version)
        return True

    def _finish(self, version: int) -> None:
        """Name a version of another process, which may have died before it did; delete one that cannot be read."""
        try:
            self.version(version)
        except NotFoundError:
            return  # its writer has deleted it as one of too many
        except CorruptFileError:
            self.file_io.delete(metadata_path(version))
        else:
            self._name(version)

    def _name(self, version: int) -> None:
        """Name a version in the hint, unless a newer one is named."""
        new = str(version).encode()
        for _ in range(_RACES):
            try:
                old = self.file_io.read(VERSION_HINT, length=_HINT_BYTES)
            except NotFoundError:
                if self.file_io.publish(VERSION_HINT, new):
                    break
                continue
            # Others have named a newer version meanwhile, which readers shall go on to see, unless a drop has deleted it.
            hinted = int(old) if old.strip().isdigit() else 0
            if hinted == version or (
                hinted > version and self.file_io.exists(metadata_path(hinted))
            ):
                break
            if self.file_io.change_if_unchanged(VERSION_HINT, new, expected=old):
                break

    # Other files.

    def records(self, location: str) -> list[JsonObject]:
        """Return the entries of a manifest, or the rows of a list; raises NotFoundError and CorruptFileError."""
        with _decoded_lock:
            records: list[JsonObject] | None = _decoded.get(location)
        if records is None:
            path = self.path_of(location)
            records = read_records(self.file_io.read(path), path)
            self.keep(location, records)
        return records

    def keep(self, location: str, records: list[JsonObject]) -> None:
        """Remember what a file that was just written holds."""
        with _decoded_lock, suppress(ValueError):  # too many to keep
            _decoded[location] = records

    def names_any(self, location: str, files: Collection[int]) -> bool:
        """Whether a manifest names one of some files, by the hashes of their locations; seldom true without."""
        with _decoded_lock:
            hashes = _location_hashes.get(location)
        if hashes is None:
            entries = self.records(location)
            hashes = frozenset(hash(entry["data_file"]["file_path"]) for entry in entries)
            with _decoded_lock, suppress(ValueError):
                _location_hashes[location] = hashes
        return not hashes.isdisjoint(files)

    def write(self, path: str, data: bytes) -> str:
        """Write a file that a version will name, and return its location; one that is there has the same content."""
        with suppress(AlreadyExistsError):
            self.file_io.write_new(path, data)
        return self.location_of(path)

    def files(self) -> list[FileStatus]:
        """Return every file of the metadata."""
        listed = self.file_io.list(METADATA_DIRECTORY)
        return [status for status in listed if not status.is_directory]

    def remove(self, paths: Iterable[str]) -> None:
        """Delete files; missing ones are no error."""
        self.file_io.delete_many(list(paths))

    def remove_all(self) -> None:
        """Delete the metadata, the hint first: a reader that comes finds no table."""
        self.file_io.delete(VERSION_HINT)
        self.remove(status.path for status in self.files())
        self.file_io.remove_empty_directory(METADATA_DIRECTORY)


def open_store(session: TableSession) -> IcebergStore:
    """Return the store of a table's Iceberg metadata; raises UnsupportedError where it has no place."""
    location = session.components.absolute_location()
    file_io = undurable(
        session.file_io
    )  # it can be written again, so that no commit waits for the disk
    if session.options.iceberg_location != "catalog-location":
        return IcebergStore(file_io, location)
    warehouse, _, folder = location.rpartition("/")[0].rpartition("/")
    database = folder.removesuffix(DATABASE_SUFFIX)
    if database == folder or not warehouse:
        raise UnsupportedError(
            "Iceberg metadata in the warehouse needs a table in one, <warehouse>/<database>.db/<table>; set "
            f"{_LOCATION.key!r} to 'table-location'",
            location=location,
            option=_LOCATION.key,
        )
    root = f"{warehouse}/iceberg/{database}/{location.rpartition('/')[2]}"
    return IcebergStore(undurable(open_directory(root, storage=session.components.storage)), root)


def follow(session: TableSession, *, with_branches: bool = False) -> None:
    """Have the Iceberg metadata show the newest snapshot. What fails is logged: the commit stands.

    `with_branches`: the newest snapshots of branches as well, as after a commit to one; else they stay as they are shown.
    """
    try:
        is_branch = bool(session.paths.branch_name)
        newest = on_branch(session, MAIN_BRANCH) if is_branch else session.newest()
        # Others may have given the option up meanwhile, and deleted the metadata.
        if newest.options.writes_iceberg:
            _written(newest, newest, with_branches=with_branches or is_branch)
    except (LsmError, OSError) as error:
        log.warning("the Iceberg metadata of table %s lags behind: %s", session.name, error)
    except Exception:
        # The rows are committed, so that no defect here may fail the commit; readers of Iceberg wait for the next one.
        log.exception("the Iceberg metadata of table %s lags behind", session.name)


def sync(
    session: TableSession, *, rebuild: bool = False, with_branches: bool = True
) -> TableMetadata:
    """Write the version of the metadata that shows the newest snapshot, and return it; the newest if it does already.

    `rebuild`: from the whole state, as if there were none. `with_branches`: look for what branches are now, which
    otherwise stay as they are shown. Raises UnsupportedError for tables and files that Iceberg's
    readers would misread, CommitConflictError if others always write first.
    """
    if session.paths.branch_name:
        session = on_branch(session, MAIN_BRANCH)
    return _written(session, session.newest(), rebuild=rebuild, with_branches=with_branches)


def _written(
    session: TableSession,
    newest: TableSession,
    *,
    rebuild: bool = False,
    with_branches: bool,
) -> TableMetadata:
    """Return what `sync` does. `newest`: the table by the schema in force, for the first attempt."""
    stale: set[str] = set()
    for number in range(_RACES):
        # Each attempt by the schema of its time: another process may show a newer one meanwhile.
        newest = session.newest() if number else newest
        problem = option_problem(newest.schema)
        if problem is not None or not newest.options.writes_iceberg:
            key, why = problem or (_STORAGE.key, "is not set; set it to 'table-location'")
            raise InvalidOptionError(f"option {key!r} {why}", key=key, table=session.name)
        store = open_store(newest)
        attempt = MetadataSync(newest, store, rebuild=rebuild, stale=stale)
        try:
            metadata = attempt.run(with_branches=with_branches)
        except LsmError:
            # Files of a table that was dropped meanwhile are missing, and those of this attempt would stay.
            if newest.identity.is_dropped():
                _remove_of_dropped(newest, store)
            raise
        if metadata is None:
            store.remove(attempt.written)  # named by no version
            continue
        shown = metadata.current
        shown_id = 0 if shown is None else shown["snapshot-id"]
        acts: tuple[Callable[[], Any], ...] = (
            partial(newest.snapshots.find, shown_id),
            newest.identity.is_dropped,
            newest.newest,
        )
        snapshot, is_dropped, altered = results_of(newest.file_io, *acts)
        # A drop, a rename and a change of the option delete the metadata: a version written after that would stay.
        if is_dropped:
            _remove_of_dropped(newest, store)
            raise newest.identity.dropped()
        if altered.options.iceberg_location != newest.options.iceberg_location:
            store.remove_all()
        elif shown is not None and not shows(shown, snapshot):
            # It was rolled back before this version was written, or keys were forgotten that the version may hold.
            stale.update(attempt.written)
        elif altered.schema.id == newest.schema.id:
            notify(newest, store)
            if stale:
                store.remove(stale - _named_paths(store, metadata))
            return metadata
        # Else the version of whoever altered it may be older than this one, which has the columns of before.
    raise CommitConflictError(
        "others keep writing the Iceberg metadata of this table; try again",
        kind=ErrorKind.RETRIES_EXHAUSTED,
        table=session.name,
    )


def _remove_of_dropped(session: TableSession, store: IcebergStore) -> None:
    """Delete the metadata of a table that is dropped; a new one of its name, in the same place, is shown again."""
    successor = session.schemas.latest()
    place = session.options.iceberg_location
    if successor is None or successor.options.iceberg_location != place:
        store.remove_all()
        # One that was made just now may have lost its metadata by that.
        successor = session.schemas.latest()
    if successor is not None:
        follow(session.with_schema(successor), with_branches=True)


def remove(session: TableSession) -> None:
    """Delete the Iceberg metadata: nothing keeps it in step any more."""
    store = open_store(session)
    store.remove_all()
    notify(session, store)


def notify(session: TableSession, store: IcebergStore | None) -> None:
    """Notify every listener of the newest version; a failure is logged, and the next version notifies again.

    `store` None: readers no longer find the metadata by the name of these options.
    """

    def current() -> str | None:
        version = None if store is None else store.hinted_version()
        return store.location_of(metadata_path(version)) if store and version is not None else None

    texts = session.options.texts
    session.notify_listeners(
        lambda listener: listener.shown_by_iceberg(session.name, texts, current)
    )


def sweep(session: TableSession) -> int:
    """Delete files of the metadata that no kept version names, an hour old at least; return how many."""
    if session.paths.branch_name or not session.options.writes_iceberg:
        return 0
    if not session.options[core_options.METADATA_ICEBERG_DELETE_AFTER_COMMIT]:
        return 0
    store = open_store(session)
    # Listed before the versions are read: what is written meanwhile is no candidate.
    listed = store.files()
    current = store.current()
    if current is None:
        return 0
    paths = _named_paths(store, current)
    limit = session.storage_time(deletes=True) - _SWEEP_AGE_MILLIS
    old = [
        status.path
        for status in listed
        if status.path not in paths and status.modified_millis < limit
    ]
    store.remove(old)
    return len(old)


def _named_paths(store: IcebergStore, current: TableMetadata) -> set[str]:
    """Return the files that the current version and the older ones in its log name."""
    logged = current.members.get("metadata-log") or []
    paths = {VERSION_HINT, metadata_path(current.version)}
    lists = {shown["manifest-list"] for shown in current.snapshots}
    for entry in logged:
        path = store.path_of(entry["metadata-file"])
        paths.add(path)
        try:
            members = store.version(int(path.rpartition("/v")[2].partition(".")[0])).snapshots
        except (NotFoundError, CorruptFileError):
            # Readers cannot have opened it either.
            continue
        lists.update(shown["manifest-list"] for shown in members)
    for location in lists:
        paths.add(store.path_of(location))
        for row in store.records(location):
            paths.add(store.path_of(row["manifest_path"]))
            if row["content"] == DELETES:
                paths.update(
                    store.path_of(entry["data_file"]["file_path"])
                    for entry in store.records(row["manifest_path"])
                )
    return paths


class MetadataSync:
    """One attempt to write the version that shows the newest snapshot.

    `stale`: paths of versions, and what they name, that showed a state which exists no more. `written`: paths of this attempt.
    """

    def __init__(
        self,
        session: TableSession,
        store: IcebergStore,
        *,
        rebuild: bool,
        stale: Collection[str] = (),
    ) -> None:
        self.session = session
        self.store = store
        self.schema = session.schema
        self.rebuild = rebuild
        codec = session.options[core_options.METADATA_ICEBERG_MANIFEST_COMPRESSION]
        self.layout = layout_of(self.schema, format_version_of(self.schema), codec)
        self.run_id = session.ids.new_id()
        self.stale = stale
        self.written: list[str] = []
        self.levels = shown_levels(self.schema)
        self.has_one_level = True

    def run(self, *, with_branches: bool) -> TableMetadata | None:
        """Return the version that shows the newest snapshot; None if another has taken its number."""
        session = self.session
        before = self._before()
        snapshot = session.snapshots.latest()
        # A ref named main is the newest snapshot; tags that operations make for a while are no names of users.
        tags = [tag for tag in session.tags.list() if tag.name != "main" and not is_lock(tag.name)]
        base = None if before is None or snapshot is None else self._base(before, snapshot)
        history: list[JsonObject] = []
        valid: list[JsonObject] = []
        if before is not None and snapshot is not None:
            valid = before.main_snapshots if base is not None else self._valid(before, tags)
            history = kept_snapshots(
                valid if base is not None or self._may_go_on(before) else (),
                earliest=session.snapshots.earliest_hint() or 1,
                newest=snapshot.id,
                tagged={tag.snapshot.id for tag in tags},
            )
        next_row_id = 0 if before is None else before.next_row_id
        tags_left_out: dict[str, str] = {}
        if snapshot is not None:
            # A commit does not try again what was left out.
            tries_all = with_branches or base is None or base.id == snapshot.id
            former = {} if before is None or tries_all else before.tags_left_out
            older = [tag for tag in tags if tag.snapshot.id < snapshot.id]
            tags_left_out, next_row_id = self._add_tagged(history, older, former, next_row_id)
            shown, next_row_id = self._shown(before, base, snapshot, next_row_id)
            history.append(shown)
        shown_branches = (
            None
            if before is None or base is None or with_branches
            else branches_as_before(before, history)
        )
        if shown_branches is None:
            shown_branches, next_row_id = self._branches(before, history, next_row_id)
        tag_ids = {
            tag.name: tag.snapshot.id
            for tag in tags
            if any(shows(shown, tag.snapshot) for shown in history)
        }
        for tag in tags:
            if tag.name not in tag_ids:
                tags_left_out.setdefault(
                    tag.name, f"another state of snapshot {tag.snapshot.id} is shown"
                )
        state = FaceState(
            location=session.components.absolute_location(),
            table_uuid=self._uuid(before, has_valid=bool(valid)),
            format_version=self.layout.format_version,
            schema=self.schema,
            schemas=self._schemas(history),
            snapshots=history,
            branches=shown_branches,
            tags=tag_ids,
            tags_left_out=tags_left_out,
            next_row_id=next_row_id,
            properties={
                TABLE_NAME: session.name,
                "schema.name-mapping.default": self.layout.name_mapping,
                **self._level(),
            },
        )
        # Tags and branches may be others.
        if before is not None and base == snapshot and shows_state(before, state):
            return before
        return self._publish(before, state)

    def _add_tagged(
        self,
        history: list[JsonObject],
        tags: Sequence[Tag],
        former_left_out: Mapping[str, str],
        next_row_id: int,
    ) -> tuple[dict[str, str], int]:
        """Add the snapshots of tags to a history, their manifests written; return tags left out, and the next row id.

        Tags in `former_left_out` are left out again.
        """
        left_out: dict[str, str] = {}
        by_id = {shown["snapshot-id"]: shown for shown in history}
        for tag in tags:
            snapshot = tag.snapshot
            if snapshot.id in by_id:
                continue
            if tag.name in former_left_out:
                left_out[tag.name] = former_left_out[tag.name]
                continue
            try:
                attempt = self._for_ref(self.session.as_of(snapshot))
                shown, next_row_id = attempt.whole_snapshot(snapshot, None, next_row_id)
                by_id[snapshot.id] = shown
            except (UnsupportedError, NotFoundError, CorruptFileError) as error:
                left_out[tag.name] = error.message
        history[:] = [by_id[number] for number in sorted(by_id)]
        return left_out, next_row_id

    def _branches(
        self, before: TableMetadata | None, history: Sequence[JsonObject], next_row_id: int
    ) -> tuple[ShownBranches, int]:
        """Return the newest snapshots of the branches, their manifests written, and the next row id."""
        refs: dict[str, int] = {}
        # By delta manifest list: branches of one tag begin with the same snapshot.
        snapshots: dict[str, JsonObject] = {}
        left_out: dict[str, str] = {}
        formers = self._former_branches(before)
        tags = {tag.name for tag in self.session.tags.list()}
        for name in branches(self.session).names():
            try:
                branch = on_branch(self.session, name)
                snapshot = branch.snapshots.latest()
                if snapshot is None:
                    continue
                if name in tags or name == MAIN_BRANCH:
                    raise UnsupportedError("a tag, or the table's own ref, has the same name")
                source = snapshot.delta_manifest_list
                shown = next((own for own in history if shows(own, snapshot)), None)
                if shown is None:
                    shown = snapshots.get(source) or formers.get((name, source))
                    if shown is None:
                        shown, next_row_id = self._shown_branch(branch, snapshot, next_row_id)
                    snapshots[source] = shown
                refs[name] = shown["snapshot-id"]
            except LsmError as error:
                left_out[name] = error.message
        shown_branches = ShownBranches(
            refs=refs, snapshots=list(snapshots.values()), left_out=left_out
        )
        return shown_branches, next_row_id

    def _former_branches(self, before: TableMetadata | None) -> dict[tuple[str, str], JsonObject]:
        """Return the snapshots of branches in a version that are still good, by branch and delta manifest list."""
        if before is None or not self._may_go_on(before):
            return {}
        return {
            (shown["summary"][BRANCH], shown["summary"][SOURCE]): shown
            for shown in before.snapshots
            if BRANCH in shown["summary"] and shown["schema-id"] == self.schema.id
        }

    def _shown_branch(
        self, branch: TableSession, snapshot: Snapshot, next_row_id: int
    ) -> tuple[JsonObject, int]:
        """Return the newest snapshot of a branch, all its files in manifests of their own, and the next row id."""
        require_alike(branch.schema, self.schema)
        attempt = self._for_ref(branch)
        shown, next_row_id = attempt.whole_snapshot(snapshot, None, next_row_id)
        return branch_snapshot(shown, branch.paths.branch_name, self.schema.id), next_row_id

    def _for_ref(self, session: TableSession) -> "MetadataSync":
        """Return what writes a snapshot of a tag or a branch into the same version. `session`: by its schema."""
        attempt = MetadataSync(session, self.store, rebuild=True)
        # All snapshots have the format of now, whatever the options asked for when they were made.
        layout = self.layout
        attempt.layout = layout_of(session.schema, layout.format_version, attempt.layout.codec)
        attempt.written = self.written
        return attempt

    def _before(self) -> TableMetadata | None:
        """Return the version to continue from; None without one that can be read."""
        try:
            return self.store.current()
        except (NotFoundError, CorruptFileError) as damage:
            log.warning("the Iceberg metadata of %s is written anew: %s", self.session.name, damage)
            self.rebuild = True
            return None

    def _base(self, before: TableMetadata, snapshot: Snapshot) -> Snapshot | None:
        """Return the snapshot that `before` shows, if the newest can be made from it; None: from the whole state."""
        members, shown = before.members, before.current
        if self.rebuild or shown is None or shown["snapshot-id"] > snapshot.id:
            return None
        same = (
            self.session.components.absolute_location(),
            self.layout.format_version,
            self.schema.id,
        )
        if same != (members["location"], members["format-version"], members["current-schema-id"]):
            return None
        # Otherwise files of several levels are shown, which change with any file of their buckets.
        if before.properties.get(_LEVEL) != self._level().get(_LEVEL):
            return None
        if shows(shown, snapshot):
            return snapshot
        base = self.session.snapshots.find(shown["snapshot-id"])
        return base if shows(shown, base) else None

    def _level(self) -> dict[str, str]:
        """Return the property that names the level of all shown files, if they have one level."""
        if not self.levels.is_deepest:
            return {}
        return {_LEVEL: str(self.levels.first) if self.has_one_level else "several"}

    def _may_go_on(self, before: TableMetadata) -> bool:
        """Whether snapshots of a version may stay as they are shown."""
        return (
            not self.rebuild
            and before.members["location"] == self.session.components.absolute_location()
        )

    def _valid(self, before: TableMetadata, tags: Sequence[Tag]) -> list[JsonObject]:
        """Return the snapshots of a version that are still what they were, as after a rollback."""
        snapshots = self.session.snapshots.find_many(
            shown["snapshot-id"] for shown in before.main_snapshots
        )
        # A tag retains its snapshot after the snapshot's own file has expired.
        tagged = {tag.snapshot.id: tag.snapshot for tag in tags}
        return [
            shown
            for shown, snapshot in zip(before.main_snapshots, snapshots, strict=True)
            if shows(shown, snapshot or tagged.get(shown["snapshot-id"]))
        ]

    def _shown(
        self,
        before: TableMetadata | None,
        base: Snapshot | None,
        snapshot: Snapshot,
        next_row_id: int,
    ) -> tuple[JsonObject, int]:
        """Return the newest snapshot for the metadata, its manifests written, and the next row id."""
        current = None if before is None else before.current
        if base is not None and current is not None and base.id == snapshot.id:
            return current, next_row_id
        files = None
        if base is not None and current is not None:
            files = self._increment(current, base, snapshot, next_row_id)
        return self.whole_snapshot(snapshot, base, next_row_id, files)

    def whole_snapshot(
        self,
        snapshot: Snapshot,
        base: Snapshot | None,
        next_row_id: int,
        files: SnapshotManifests | None = None,
    ) -> tuple[JsonObject, int]:
        """Write the manifest list of a snapshot, of some manifests or else of all its files; return it and the next row id."""
        if files is None:
            files = self._all_files(snapshot, next_row_id)
        is_v3 = self.layout.format_version >= 3
        shown = snapshot_json(
            snapshot,
            parent_id=None if base is None else base.id,
            manifest_list=self.store.location_of(
                f"{METADATA_DIRECTORY}/snap-{snapshot.id}-{self.run_id}.avro"
            ),
            totals=totals_of(files.rows),
            row_ids=(next_row_id, files.next_row_id - next_row_id) if is_v3 else None,
        )
        rows = list(files.rows)
        data = manifest_list(rows, self.layout, shown)
        self._write(self.store.path_of(shown["manifest-list"]), data)
        self.store.keep(shown["manifest-list"], rows)
        return shown, files.next_row_id

    # Files.

    def _all_files(self, snapshot: Snapshot, next_row_id: int) -> SnapshotManifests:
        """Write manifests of every file that a snapshot shows."""
        live = self.shown_entries(snapshot)
        # Files of a bucket are written and deleted together.
        live.sort(key=lambda entry: entry.physical_file)
        entries, next_row_id = self._added(live, snapshot.id, next_row_id)
        vectors = vector_files(self.session.index_entries(snapshot))
        if self.layout.has_puffin_files:
            deletes = self._puffin_deletes(vectors.values(), snapshot.id)
        else:
            deletes = self._position_deletes(self._named_vectors(vectors.values()), snapshot.id)
        rows = (*self._manifests(entries, snapshot.id), *self._manifests(deletes, snapshot.id))
        return SnapshotManifests(rows=rows, next_row_id=next_row_id)

    def shown_entries(self, snapshot: Snapshot) -> list[ManifestEntry]:
        """Return the files that a snapshot shows."""
        live = list(self.session.live_entries(snapshot))
        shown = self.levels.files(live)
        self.has_one_level = all(entry.file.level in self.levels for entry in shown)
        return shown

    def shown_files(self, snapshot: Snapshot) -> dict[str, JsonObject]:
        """Return `data_file` of each file that a snapshot shows, by location, without the ids of its rows."""
        files = self._data_files(self.shown_entries(snapshot))
        return {file["file_path"]: file for file in files}

    def deleted_rows(self, snapshot: Snapshot) -> dict[str, bytes | pa.Table]:
        """Return the deleted rows of a snapshot as files of the metadata hold them.

        That is Puffin files by the name of their index file, or rows of position delete files by the location of their
        data file.
        """
        vectors = vector_files(self.session.index_entries(snapshot))
        if self.layout.has_puffin_files:
            files = {name: self._vectors(entry) for name, entry in vectors.items()}
            return {
                name: puffin_file(stored.items()).data for name, stored in files.items() if stored
            }
        return {
            location: position_deletes(location, vector)
            for entry in vectors.values()
            for location, vector in self._vectors(entry).items()
        }

    def _vectors(self, entry: IndexManifestEntry) -> dict[str, DeletionVector]:
        """Return the vectors of an index file that delete something, by the location of their data file."""
        vectors = DeletionVectorStore(self.session.file_io, self.session.paths)
        return {
            self._data_location(entry.partition, entry.bucket, name): vector
            for name, vector in vectors.read_file(entry.index_file).items()
            if len(vector)
        }

    def _increment(
        self, current: JsonObject, base: Snapshot, snapshot: Snapshot, next_row_id: int
    ) -> SnapshotManifests | None:
        """Write manifests of the changes since `base`; None where its files or those in between are missing."""
        try:
            deltas = self._deltas(base, snapshot)
            if deltas is None:
                return None
            rows = self.store.records(current["manifest-list"])
            if self.levels.is_deepest and any(
                entry.file.level > self.levels.first for delta in deltas for entry in delta
            ):
                return None
            changes = file_changes(deltas, self.levels)
            data_rows = [row for row in rows if row["content"] == DATA]
            data, next_row_id = self._changed_data(data_rows, changes, snapshot.id, next_row_id)
            delete_rows = [row for row in rows if row["content"] == DELETES]
            deletes = self._changed_deletes(delete_rows, base, snapshot)
        except (NotFoundError, CorruptFileError) as damage:
            log.warning("the Iceberg metadata of %s is written anew: %s", self.session.name, damage)
            return None
        return SnapshotManifests(rows=(*data, *deletes), next_row_id=next_row_id)

    def _deltas(self, base: Snapshot, snapshot: Snapshot) -> list[list[ManifestEntry]] | None:
        if snapshot.id - base.id > _SNAPSHOTS_MAX:
            return None
        session = self.session
        snapshots = [
            *session.snapshots.find_many(range(base.id + 1, snapshot.id)),
            snapshot,
        ]
        deltas = []
        for between in snapshots:
            if between is None:
                return None
            # The files of level 0 of a table with a key wait for a compaction.
            name, least = between.delta_manifest_list, self.levels.first
            deltas.append(session.list_entries(between, name, min_level=least))
        return deltas

    def _changed_data(
        self, rows: list[JsonObject], changes: FileChanges, snapshot_id: int, next_row_id: int
    ) -> tuple[tuple[JsonObject, ...], int]:
        added: Sequence[ManifestEntry] = changes.added
        kept_entries: tuple[JsonObject, ...] = ()
        if changes.removed or changes.moved:
            removed = {self._data_location(*place) for place in changes.removed}
            moved = (self._data_location(*place) for place in changes.moved)
            hashes = frozenset(map(hash, (*removed, *moved)))
            # Of many manifests those are decoded which name a file that changes.
            names_any = self.store.names_any
            concerned = [row for row in rows if names_any(row["manifest_path"], hashes)]
            change = keep_manifests(
                concerned, self._entries, lambda file: file["file_path"] in removed
            )
            kept_paths = {row["manifest_path"] for row in change.kept_rows}
            dropped = {row["manifest_path"] for row in concerned} - kept_paths
            rows = [row for row in rows if row["manifest_path"] not in dropped]
            kept_entries = change.kept_entries
            # A file that only changed its level is shown as before: its vector would not count for a newer entry.
            added = [
                entry
                for entry in added
                if entry.physical_file not in changes.moved
                or self._data_location(*entry.physical_file) not in change.locations
            ]
        entries, next_row_id = self._added(added, snapshot_id, next_row_id)
        return self._with_entries(rows, kept_entries, entries, snapshot_id), next_row_id

    def _changed_deletes(
        self, rows: list[JsonObject], base: Snapshot, snapshot: Snapshot
    ) -> tuple[JsonObject, ...]:
        if base.index_manifest == snapshot.index_manifest or not has_vectors(self.schema):
            return tuple(rows)
        vectors = vector_files(self.session.index_entries(snapshot))
        if self.layout.has_puffin_files:
            change, entries = self._changed_puffin_files(rows, vectors, snapshot.id)
        else:
            former = vector_files(self.session.index_entries(base))
            change, entries = self._changed_position_deletes(rows, former, vectors, snapshot.id)
        return self._with_entries(list(change.kept_rows), change.kept_entries, entries, snapshot.id)

    def _changed_puffin_files(
        self, rows: list[JsonObject], vectors: Mapping[str, IndexManifestEntry], snapshot_id: int
    ) -> tuple[ManifestChange, list[JsonObject]]:
        change = keep_manifests(
            rows, self._entries, lambda file: deletes_name(file["file_path"]) not in vectors
        )
        shown_names = set(map(deletes_name, change.locations))
        new = [entry for name, entry in vectors.items() if name not in shown_names]
        return change, self._puffin_deletes(new, snapshot_id)

    def _changed_position_deletes(
        self,
        rows: list[JsonObject],
        former: dict[str, IndexManifestEntry],
        vectors: dict[str, IndexManifestEntry],
        snapshot_id: int,
    ) -> tuple[ManifestChange, list[JsonObject]]:
        index_files = [(former | vectors)[name] for name in former.keys() ^ vectors.keys()]
        buckets = {(entry.partition, entry.bucket) for entry in index_files}
        directories = {directory_of(self._data_location(*bucket, "file")) for bucket in buckets}
        # An index file holds the vectors of many data files, most of which stay as they are.
        vectors_by_name = self._named_vectors(
            entry for entry in vectors.values() if (entry.partition, entry.bucket) in buckets
        )

        def leaves(file: JsonObject) -> bool:
            is_changed = directory_of(file["referenced_data_file"]) in directories
            return is_changed and deletes_name(file["file_path"]) not in vectors_by_name

        change = keep_manifests(rows, self._entries, leaves)
        new_names = vectors_by_name.keys() - map(deletes_name, change.locations)
        entries = self._position_deletes(
            {name: vectors_by_name[name] for name in new_names}, snapshot_id
        )
        return change, entries

    def _with_entries(
        self,
        rows: list[JsonObject],
        kept_entries: Sequence[JsonObject],
        added: list[JsonObject],
        snapshot_id: int,
    ) -> tuple[JsonObject, ...]:
        """Return the rows of a list with some manifests more, small ones merged when that is due."""
        options = self.session.options
        merged = rows_to_merge(
            rows,
            len(kept_entries) + len(added),
            least=options[core_options.METADATA_ICEBERG_COMPACTION_MIN_FILE_NUM],
            most=options[core_options.METADATA_ICEBERG_COMPACTION_MAX_FILE_NUM],
        )
        old = [*kept_entries, *(entry for row in merged for entry in self._entries(row))]
        entries = [*map(existing_entry, old), *added]
        stay = [row for row in rows if not any(row is small for small in merged)]
        return (*stay, *self._manifests(entries, snapshot_id))

    def _added(
        self, live: Sequence[ManifestEntry], snapshot_id: int, next_row_id: int
    ) -> tuple[list[JsonObject], int]:
        """Return the entries of data files, and the next row id after theirs."""
        self.require_readable(live)
        if self.layout.format_version < 3:
            return [added_entry(file, snapshot_id) for file in self._data_files(live)], next_row_id
        counts = [entry.file.row_count for entry in live]
        *row_ids, next_row_id = accumulate(counts, initial=next_row_id)
        files = self._data_files(live, row_ids)
        return [added_entry(file, snapshot_id) for file in files], next_row_id

    def _data_files(
        self, live: Sequence[ManifestEntry], row_ids: Sequence[int | None] | None = None
    ) -> list[JsonObject]:
        """Return `data_file` of some files. `row_ids`: the first id of the rows of each; None: they have none."""
        partitions = self._partitions([entry.partition for entry in live])
        located = [
            LocatedFile(
                file=entry.file,
                location=self._data_location(*entry.physical_file),
                partition=partitions[entry.partition],
                first_row_id=row_id,
            )
            for entry, row_id in zip(live, row_ids or repeat(None, len(live)), strict=True)
        ]
        return data_files(located, self.layout, self._schemas_of(live))

    def _puffin_deletes(
        self, index_entries: Iterable[IndexManifestEntry], snapshot_id: int
    ) -> list[JsonObject]:
        entries: list[JsonObject] = []
        for entry in index_entries:
            vectors = self._vectors(entry)
            if not vectors:
                continue
            # It names the data files by their location: after a rename the same vectors make another file.
            name = f"dv-{entry.index_file.file_name}.{self.run_id}.puffin"
            deletes = puffin_file(vectors.items())
            entries += self._deletes_entries(name, deletes, entry.partition, snapshot_id)
        return entries

    def _named_vectors(
        self, index_entries: Iterable[IndexManifestEntry]
    ) -> dict[str, tuple[bytes, str, DeletionVector]]:
        """Return vectors with the partition and location of their data file, by a name made of what they delete."""
        vectors = {}
        for entry in index_entries:
            for location, vector in self._vectors(entry).items():
                content = location.encode() + vector.positions.tobytes()
                name = blake2b(content, digest_size=16).hexdigest()
                vectors[name] = entry.partition, location, vector
        return vectors

    def _position_deletes(
        self, vectors: Mapping[str, tuple[bytes, str, DeletionVector]], snapshot_id: int
    ) -> list[JsonObject]:
        def write(name: str) -> list[JsonObject]:
            partition, location, vector = vectors[name]
            deletes = position_delete_file(location, vector)
            name = f"dv-{name}.{self.run_id}.parquet"
            return self._deletes_entries(name, deletes, partition, snapshot_id)

        written = results_of(self.session.file_io, *(partial(write, name) for name in vectors))
        return [entry for entries in written for entry in entries]

    def _deletes_entries(
        self, name: str, deletes: DeletesFile, partition: bytes, snapshot_id: int
    ) -> list[JsonObject]:
        """Write a file of deleted rows; return its entries."""
        location = self._write(f"{METADATA_DIRECTORY}/{name}", deletes.data)
        values = self._partitions([partition])[partition]
        files = delete_files(deletes, location=location, partition=self.layout.partition(values))
        return [added_entry(file, snapshot_id) for file in files]

    def _manifests(self, entries: list[JsonObject], snapshot_id: int) -> tuple[JsonObject, ...]:
        """Write entries as manifests; return their rows of a list."""
        rows = []
        for chunk in chunks(entries):
            content = chunk[0]["data_file"]["content"]
            data = manifest(chunk, self.layout, content)
            path = f"{METADATA_DIRECTORY}/{self.run_id}-m{len(self.written)}.avro"
            location = self._write(path, data)
            rows.append(
                list_row(
                    chunk, self.layout, location=location, size=len(data), snapshot_id=snapshot_id
                )
            )
            self.store.keep(location, list(chunk))
        return tuple(rows)

    def _write(self, path: str, data: bytes) -> str:
        self.written.append(path)
        return self.store.write(path, data)

    def _entries(self, row: JsonObject) -> list[JsonObject]:
        return self.store.records(row["manifest_path"])

    def _data_location(self, partition: bytes, bucket: int, name: str) -> str:
        path = self._context.data_file(partition, bucket, name)
        return f"{self.session.components.absolute_location()}/{path}"

    def _partitions(self, stored: Sequence[bytes]) -> dict[bytes, tuple[PlainValue, ...]]:
        distinct = list(dict.fromkeys(stored))
        tuples = partition_tuples(distinct, self.layout.partition_fields)
        return dict(zip(distinct, tuples, strict=True))

    @cached_property
    def _context(self) -> BucketContext:
        return self.session.context()

    # Conditions.

    def require_readable(self, entries: Sequence[ManifestEntry], *, linked: bool = True) -> None:
        """Raise UnsupportedError, naming a file, if readers of Iceberg would misread one of some files."""
        for name, problem in self.problems(entries, linked=linked):
            raise UnsupportedError(
                f"Iceberg metadata cannot name file {name}, which {problem}; a full compaction writes its rows anew",
                file=name,
                table=self.session.name,
            )

    def problems(
        self, entries: Sequence[ManifestEntry], *, linked: bool = True
    ) -> Iterator[tuple[str, str]]:
        """Yield the names of files that readers of Iceberg would misread, and why.

        `linked`: some of them may be linked since they were last looked at, so that footers are read.
        """
        schemas = self._schemas_of(entries)
        older = {number: old for number, old in schemas.items() if number != self.schema.id}
        retyped = {number: changed_column(old, self.schema) for number, old in older.items()}
        renamed = {number: renamed_column(old, self.schema) for number, old in older.items()}
        needs_ids = has_lists_or_maps(self.schema) or (linked and self._may_hold_linked_files)
        for entry in entries:
            file = entry.file
            new_name = renamed.get(file.schema_id)
            problem = file_problem(file, self.schema, retyped.get(file.schema_id))
            if problem is None and (needs_ids or new_name is not None):
                problem = self.id_problem(entry, new_name)
            if problem is not None:
                yield file.file_name, problem

    def id_problem(self, entry: ManifestEntry, renamed: str | None) -> str | None:
        """Return why the field ids of a file are unusable; without any, readers go by the names of columns."""
        path = self._context.data_file(*entry.physical_file)
        with self.session.file_io.open_input(path, size=entry.file.file_size) as source:
            stored = pq.ParquetFile(source).schema_arrow
        if not any(FIELD_ID in (column.metadata or {}) for column in stored):
            return renamed and f"has no field ids, and another name for column {renamed!r}"
        written = file_schema(self._schemas_of([entry])[entry.file.schema_id])
        present = {b"%d" % field.id for field in self.schema.fields}
        for column in stored:
            expected = field_ids(written.field(column.name)) if column.name in written.names else ()
            # A column that was dropped is not read.
            if not expected or expected[0] not in present:
                continue
            ids = field_ids(column)
            if ids[0] is not None and None in ids:
                return "has no field ids of members of lists and maps"
            if ids != expected:
                return f"has field ids of another table in column {column.name!r}"
        return None

    @cached_property
    def _may_hold_linked_files(self) -> bool:
        """Whether files of other writers may be linked into the table, which have any field ids."""
        schema = self.schema
        is_plain = not schema.has_primary_key and not schema.partition_keys
        return is_plain and isinstance(self.session.file_io, LocalFileIO)

    def _schemas_of(self, entries: Sequence[ManifestEntry]) -> dict[int, TableSchema]:
        numbers = {entry.file.schema_id for entry in entries}
        return {
            number: self.schema if number == self.schema.id else self.session.schemas.load(number)
            for number in numbers
        }

    # The version.

    def _schemas(self, shown: list[JsonObject]) -> dict[int, JsonObject]:
        """Return the schemas that snapshots name, and the one in force; a snapshot whose schema has no form names that."""
        schemas = {self.schema.id: self.layout.columns}
        for number in {snapshot["schema-id"] for snapshot in shown} - set(schemas):
            try:
                schemas[number] = iceberg_schema(self.session.schemas.load(number))
            except UnsupportedError:
                # The version before has the same objects, which stay as they are.
                for i, snapshot in enumerate(shown):
                    if snapshot["schema-id"] == number:
                        shown[i] = {**snapshot, "schema-id": self.schema.id}
        return schemas

    def _publish(self, before: TableMetadata | None, state: FaceState) -> TableMetadata | None:
        session, store = self.session, self.store
        if before is None:
            version = store.newest_version() + 1
            log_location = ""
        else:
            version = before.version + 1
            path = metadata_path(before.version)
            log_location = "" if path in self.stale else store.location_of(path)
        newest_id = state.snapshots[-1]["snapshot-id"] if state.snapshots else 1
        most = session.options[core_options.METADATA_ICEBERG_PREVIOUS_VERSIONS_MAX]
        has_moved = before is not None and before.members["location"] != state.location
        # The versions of a table that was renamed name files where there are none.
        versions, dropped = kept_log(None if has_moved else before, log_location, most)
        metadata = next_metadata(
            state,
            version=max(version, newest_id),
            now_millis=session.clock.now_millis(),
            log=versions,
            texts={} if before is None else before.texts,
        )
        if not store.publish(metadata):
            return None
        self.written.append(metadata_path(metadata.version))
        deletes = session.options[core_options.METADATA_ICEBERG_DELETE_AFTER_COMMIT]
        if dropped and deletes:
            store.remove(store.path_of(location) for location in dropped)
        log.info(
            "Iceberg metadata version=%d snapshot=%d table=%s",
            metadata.version,
            newest_id,
            session.name,
        )
        return metadata

    def _uuid(self, before: TableMetadata | None, *, has_valid: bool) -> str:
        """Return the UUID of the version before; else one that is the same whenever the metadata is written anew."""
        # A version without a snapshot of this table is of one that had its name before. Java's name no snapshots of ours.
        if before is not None and (has_valid or TABLE_NAME not in before.properties):
            text: str = before.members["table-uuid"]
            return text
        return uuid_of(self.session.file_io.read(self.session.paths.schema_file(0)))
