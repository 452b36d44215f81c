"""The plan of forgetting keys: files that hold them, rewrites, expiries and refusals."""

import os
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from lsm_engine.base.errors import ErrorKind, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.base.units import counted, parse_age
from lsm_engine.cache.shared import clear_manifest_cache
from lsm_engine.format.commit_message import CommitMessage, DataIncrement
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.deletion_vector import DeletionVector
from lsm_engine.format.index_file import HASH, IndexFileMeta, IndexManifestEntry
from lsm_engine.format.manifest import Bucket, ManifestEntry, PhysicalFile, StoredKeys, by_bucket
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.lookup.locate import MatchingRows, matching_rows
from lsm_engine.lookup.lookup import process_cache
from lsm_engine.maintenance.forgotten_keys import (
    ForgottenKeys,
    SearchReport,
    Trace,
    TraceSearch,
    emptied_partitions,
    shown_text,
)
from lsm_engine.maintenance.orphans import (
    history_paths,
    metadata_paths,
    reachable_paths,
    retained_paths,
)
from lsm_engine.metadata.branches import BranchStore
from lsm_engine.metadata.trash import TrashStore
from lsm_engine.options.modes import CommitKind, EntryKind, FileSource
from lsm_engine.planning.proposal import index_entries
from lsm_engine.read.split import BucketReader
from lsm_engine.storage.local_state import default_roots, processes_of, sweep, sweep_spills
from lsm_engine.table.branches import on_branch
from lsm_engine.table.bucket_context import BucketContext
from lsm_engine.table.bucket_keys import bucket_hashes
from lsm_engine.table.components import KeyHolder
from lsm_engine.table.deletion_vectors import BucketDeletions, BucketVectors
from lsm_engine.table.references import References, other_branches
from lsm_engine.table.session import TableSession
from lsm_engine.write.buckets import listed_hashes, write_hashes

# -- Remains of branches whose creation or deletion was killed -------------------------------------
#
# No branch, yet maintenance keeps its files.


def left_branches(session: TableSession, traces: Collection[str]) -> Iterator[str]:
    """Yield the names of those that hold a key themselves, or keep a file that does."""
    store = BranchStore(session.file_io, session.paths)
    for branch in other_branches(session):
        name = branch.paths.branch_name
        if store.exists(name):
            continue
        own = {status.path for status in store.files(name)}
        referenced = history_paths(branch) | retained_paths(
            branch, References(branch).retained_by_tags()
        )
        if not (own | referenced).isdisjoint(traces):
            yield name


def objection_to_taking(session: TableSession, name: str, *, is_allowed: bool, age: str) -> str:
    """Return why what is left of a branch may not be deleted; empty if it may."""
    description = f"what is left of branch {name!r}, whose creation or deletion died, holds a key"
    if not is_allowed:
        return f"{description}; allow rewrite_branches, or delete the branch"
    files = BranchStore(session.file_io, session.paths).files(name)
    oldest = session.file_io.now_millis() - parse_age(age)
    if any(status.modified_millis > oldest for status in files):
        return f"{description}, and may be one that is being made: it is younger than {age!r}; try later"
    return ""


# -- Rewrite the state of one retained reference without the rows of some keys ---------------------
#
# Every stored version of a key is removed, whatever the merge engine: files are rewritten
# without its rows, at their level and with the sequence numbers of the remaining rows. Rows of
# other keys do not change and no rows are merged, so that no changelog has to be emitted.


@record
class StateChange:
    """The files of a retained reference's state that are replaced: data files, and index files of the same buckets."""

    deleted: tuple[ManifestEntry, ...] = ()
    new: tuple[ManifestEntry, ...] = ()
    index: tuple[IndexManifestEntry, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the state changes."""
        return not (self.deleted or self.index)

    @property
    def row_count(self) -> int:
        """How many stored rows are removed, also those that deletion vectors had deleted."""
        return sum(entry.file.row_count for entry in self.deleted) - sum(
            entry.file.row_count for entry in self.new
        )

    def after(self, live: Iterable[ManifestEntry]) -> list[ManifestEntry]:
        """Return the live files of a state once it is changed."""
        deleted = {entry.identity for entry in self.deleted}
        return [*(entry for entry in live if entry.identity not in deleted), *self.new]

    def messages(self) -> tuple[CommitMessage, ...]:
        """Return the change bucket by bucket, as a commit takes it."""
        deleted, new = by_bucket(self.deleted), by_bucket(self.new)
        index: dict[tuple[Bucket, EntryKind], list[IndexFileMeta]] = {}
        for entry in self.index:
            place = ((entry.partition, entry.bucket), entry.kind)
            index.setdefault(place, []).append(entry.index_file)
        return tuple(
            CommitMessage(
                partition=bucket[0],
                bucket=bucket[1],
                total_buckets=next((entry.total_buckets for entry in deleted.get(bucket, ())), -1),
                data=DataIncrement(
                    deleted_files=tuple(entry.file for entry in deleted.get(bucket, ())),
                    new_files=tuple(entry.file for entry in new.get(bucket, ())),
                    deleted_index_files=tuple(index.get((bucket, EntryKind.DELETE), ())),
                    new_index_files=tuple(index.get((bucket, EntryKind.ADD), ())),
                ),
            )
            for bucket in dict.fromkeys((*deleted, *(bucket for bucket, _ in index)))
        )


class KeyFiles:
    """Finds the data files that hold some keys, and writes them anew, each once for several retained references."""

    def __init__(self, keys: ForgottenKeys) -> None:
        self._keys = keys
        self._found: dict[PhysicalFile, Longs] = {}
        self._written: dict[tuple[bytes, int, str, DeletionVector], DataFileMeta | None] = {}
        self._ordered: dict[bytes | None, list[bytes]] = {}

    def named_by(self, live: Iterable[ManifestEntry]) -> "KeyFiles":
        """Return the same findings with the written files of one state: others may be deleted meanwhile."""
        names = {entry.file.file_name for entry in live}
        copy = KeyFiles(self._keys)
        copy._found = self._found
        copy._written = {
            place: file
            for place, file in self._written.items()
            if file is None or file.file_name in names
        }
        return copy

    def holding(
        self, session: TableSession, live: Sequence[ManifestEntry]
    ) -> list[tuple[ManifestEntry, Longs]]:
        """Return the files with rows of a key, and the positions of these rows."""
        new = [entry for entry in live if entry.physical_file not in self._found]
        searched = [entry for entry in new if self._may_hold(session, entry)]
        for entry in new:
            self._found[entry.physical_file] = np.zeros(0, np.int64)
        matches: Iterable[MatchingRows] = matching_rows(session, self._keys.columns, searched)
        for match in matches:
            self._found[match.entry.physical_file] = match.positions
        located = [(entry, self._found[entry.physical_file]) for entry in live]
        return [(entry, positions) for entry, positions in located if len(positions)]

    def _may_hold(self, session: TableSession, entry: ManifestEntry) -> bool:
        """Whether the partition and the key range of a file allow one of the keys.

        Rows that wait for a bucket lie as they came: what their entry names are the first and the last.
        """
        order = session.key_order
        if order is None or entry.bucket < 0:
            return True
        partition = entry.partition if entry.partition in self._keys.by_partition else None
        if partition not in self._ordered:
            stored_keys = self._keys.by_partition.get(partition, frozenset())
            self._ordered[partition] = sorted(map(order, stored_keys))
        ordered = self._ordered[partition]
        first = bisect_left(ordered, order(entry.file.min_key))
        return first < len(ordered) and ordered[first] <= order(entry.file.max_key)

    def without(
        self, context: BucketContext, entry: ManifestEntry, vectors: BucketVectors
    ) -> ManifestEntry | None:
        """Return the entry of a file that replaces one, at its level; None: no row is left."""
        vector = vectors.vector_of(entry.file.file_name)
        positions = self._found[entry.physical_file]
        dropped = (
            DeletionVector.from_positions(positions) if vector is None else vector.union(positions)
        )
        name = (*entry.physical_file, dropped)
        if name not in self._written:
            self._written[name] = _rewritten(context, entry, dropped)
        rewritten = self._written[name]
        return (
            None
            if rewritten is None
            else replace(entry, file=replace(rewritten, level=entry.file.level))
        )


def _rewritten(
    context: BucketContext, entry: ManifestEntry, dropped: DeletionVector
) -> DataFileMeta | None:
    """Write a file anew, in the schema that it was written with, without some of its rows."""
    file = entry.file
    if len(dropped) == file.row_count:
        return None
    own = replace(context, schema=context.schemas[file.schema_id])
    with own.new_files(
        (entry.partition, entry.bucket),
        level=file.level,
        source=file.file_source or FileSource.COMPACT,
        never_roll=True,
        first_sequence_number=file.min_sequence_number,
    ) as writer:
        with own.open_file((entry.partition, entry.bucket), file) as reader:
            for rows in reader.without(dropped).batches():
                writer.write(rows)
        (meta,) = writer.close()
    return replace(meta, creation_millis=file.creation_millis, file_source=file.file_source)


def change_state(
    session: TableSession, snapshot: Snapshot, keys: ForgottenKeys, files: KeyFiles
) -> StateChange:
    """Write what replaces the files of a retained reference that hold one of the keys.

    The files are invisible until a retained reference names them. Raises UnsupportedError for files that lie
    outside of the table.
    """
    live = session.live_entries(snapshot)
    holding = _with_later([entry for entry, _ in files.holding(session, live)], live)
    context = session.context({entry.file.schema_id for entry in live})
    indexes = session.vector_files(snapshot)
    vectors = {
        bucket: BucketVectors(context, places.values())
        for bucket, places in session.vector_places(snapshot).items()
    }
    none = BucketVectors(context, ())
    new: list[ManifestEntry] = []
    names: dict[Bucket, list[str]] = {}
    for entry in holding:
        if entry.file.external_path is not None:
            raise UnsupportedError(
                "a data file that holds a key lies outside of the table's directory, where its owner "
                "has to delete it; copy the rows to a new table",
                kind=ErrorKind.UNSUPPORTED_FORMAT,
                file=entry.file.file_name,
                external_path=entry.file.external_path,
            )
        bucket = (entry.partition, entry.bucket)
        names.setdefault(bucket, []).append(entry.file.file_name)
        rewritten = files.without(context, entry, vectors.get(bucket, none))
        if rewritten is not None:
            new.append(rewritten)
    change = StateChange(deleted=tuple(holding), new=tuple(new))
    index: list[IndexManifestEntry] = []
    for bucket, file_names in names.items():
        deletions = BucketDeletions(context, indexes.get(bucket, ()))
        deletions.forget(file_names)
        written = deletions.write()
        index += index_entries(bucket, written.deleted, written.new)
    index += _hash_indexes(session, snapshot, keys, change.after(live))
    return replace(change, index=tuple(index))


def _with_later(
    holding: Sequence[ManifestEntry], live: Sequence[ManifestEntry]
) -> list[ManifestEntry]:
    """Return the files to write anew: where rows wait for a bucket, those behind such a file, too.

    Rows that wait count in the order of their entries, and what is written anew comes last.
    """
    holding_identities = {entry.identity for entry in holding}
    waiting: set[bytes] = set()
    entries = []
    for entry in live:
        if entry.identity in holding_identities or (
            entry.bucket < 0 and entry.partition in waiting
        ):
            entries.append(entry)
            waiting |= {entry.partition} if entry.bucket < 0 else set()
    return entries


# --- the indexes of dynamic buckets --------------------------------------------------------------


def _hash_indexes(
    session: TableSession, snapshot: Snapshot, keys: ForgottenKeys, live: Sequence[ManifestEntry]
) -> list[IndexManifestEntry]:
    """Write the indexes anew that list the hash of a key and of no other key of their bucket."""
    changes: list[IndexManifestEntry] = []
    for entry, remaining in indexes_with_hashes(session, snapshot, keys, live):
        new = [write_hashes(session.context(), remaining)] if len(remaining) else []
        changes += index_entries((entry.partition, entry.bucket), [entry.index_file], new)
    return changes


def indexes_with_hashes(
    session: TableSession, snapshot: Snapshot, keys: ForgottenKeys, live: Sequence[ManifestEntry]
) -> Iterator[tuple[IndexManifestEntry, npt.NDArray[np.int32]]]:
    """Yield the indexes that list the hash of a key which no key in `live` has, and the hashes to keep."""
    for entry in session.index_entries(snapshot):
        if entry.index_file.index_type != HASH or not keys.may_be_in(entry.partition):
            continue
        listed = listed_hashes(session.context(), entry.index_file)
        is_forgotten = np.isin(listed, list(keys.hashes))
        if is_forgotten.any():
            other_hashes = _hashes_of(session, entry.partition, entry.bucket, live)
            remaining = listed[~is_forgotten | np.isin(listed, other_hashes)]
            if len(remaining) < len(listed):
                yield entry, remaining


def _hashes_of(
    session: TableSession, partition: bytes, bucket: int, live: Sequence[ManifestEntry]
) -> Longs:
    """Return the distinct hashes of all keys in the files of a bucket."""
    own = [entry for entry in live if (entry.partition, entry.bucket) == (partition, bucket)]
    context = session.context({entry.file.schema_id for entry in own})
    reader = BucketReader(context, partition, bucket)
    names = session.schema.bucket_keys
    fields = session.schema.select(names)
    hashes = np.zeros(0, np.int64)
    for entry in own:
        for rows in reader.file(entry.file, names):
            hashes = np.union1d(hashes, bucket_hashes(fields, rows))
    return hashes


# -- Keys outside of a table's files: catalog, lookup files, spilled rows --------------------------

_COMPACTIONS = "compaction"


@record
class Outside:
    """The places that keep keys besides a table's files. `alive`: other processes, which clear up themselves.

    `has_catalog`: whether the table was opened by its name in a catalog, which then is searched.
    """

    has_catalog: bool
    catalog_rows: int
    traces: tuple[Trace, ...]
    alive: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the catalog is known to hold a key."""
        return bool(self.catalog_rows or self.traces)

    def lines(self) -> Iterator[str]:
        """Yield it line by line, for people."""
        if not self.has_catalog:
            yield "no catalog was searched: the table was opened by its path; if it has a name in one, use that"
        if self.catalog_rows:
            yield f"{counted(self.catalog_rows, 'row')} of the catalog {'holds' if self.catalog_rows == 1 else 'hold'} a key"
        yield from (str(trace) for trace in self.traces)
        yield from self.alive


def texts_outside(session: TableSession, keys: ForgottenKeys) -> list[tuple[Trace, bytes]]:
    """Return the catalog's files that hold a text of the keys as bytes, and the text."""
    return [
        (Trace(kind="catalog", path=path, detail=f"{shown_text(text)} in its bytes"), text)
        for holder in _holders(session)
        for path, text in holder.files_with_texts(keys.texts)
    ]


def outside_of(session: TableSession, keys: StoredKeys, traces: Iterable[Trace]) -> Outside:
    """Look at what keeps keys besides the table's files. `traces`: what was found as bytes."""
    holders = _holders(session)
    rows = sum(holder.rows_with_keys(session.name, keys) for holder in holders)
    return Outside(
        has_catalog=bool(holders),
        catalog_rows=rows,
        traces=tuple(traces),
        alive=tuple(_lookup_files(session)),
    )


def clear_outside(session: TableSession, keys: StoredKeys) -> None:
    """Take keys out of the catalog; remove this process's lookup files, what dead ones left, and decoded manifests."""
    process_cache().close()
    for root in default_roots():
        sweep(root)
    sweep_spills()
    clear_manifest_cache()
    for holder in _holders(session):
        holder.forget_keys(session.name, keys)


def _holders(session: TableSession) -> list[KeyHolder]:
    return [
        listener for listener in session.components.listeners if isinstance(listener, KeyHolder)
    ]


def _lookup_files(session: TableSession) -> Iterator[str]:
    """Yield the processes that live and keep lookup files that may be of the table, but for this one."""
    for directory in chain.from_iterable(map(processes_of, default_roots())):
        tables = directory.state.get("tables")
        table_names = tables if isinstance(tables, dict) else {}
        is_other = directory.is_alive and directory.state.get("pid") != os.getpid()
        if directory.file_count and is_other and {session.name, _COMPACTIONS} & set(table_names):
            yield (
                f"process {directory.state.get('pid')} keeps lookup files in {directory.path}, perhaps with a "
                "key: they go when it ends, or after 'lookup.cache-file-retention'"
            )


# -- The plan of forgetting keys: files that hold them, rewrites, expiries and refusals ------------


@record
class ForgetScope:
    """The parts of a table that forgetting may change besides the newest state and the history.

    `rewrite_tags`: tags are written anew without the keys. `rewrite_branches`: the same for branches,
    whose history goes as well. `move_consumers`: consumers lose the changes that they have not read.
    `unreferenced_older_than`: files that nothing names go once they are older than this age; younger
    ones may belong to a commit that is being written.
    """

    rewrite_tags: bool = False
    rewrite_branches: bool = False
    move_consumers: bool = False
    unreferenced_older_than: str = "1 d"


@record
class RootRewrite:
    """A retained reference that holds a key. `name` is for people; `rows` are stored versions."""

    name: str
    data_files: int
    rows: int
    metadata_files: int

    def __str__(self) -> str:
        return (
            f"{self.name}: {counted(self.data_files, 'data file')} ({counted(self.rows, 'row')} of the keys), "
            f"{counted(self.metadata_files, 'metadata file')}"
        )


@record
class ForgetPlan:
    """The plan of a forgetting.

    `traces`: every file that holds a key. `rewrites`: what is written anew. `expires`: the history
    that goes, by name; time travel to it is lost. `refusals`: what has to be allowed first, or be done
    by the user. `outside`: what else keeps the keys on this machine and in the catalog. `file_count` and
    `byte_count`: what was searched of the table's files.
    """

    table: str
    key_count: int
    file_count: int
    byte_count: int
    traces: tuple[Trace, ...]
    unreadable: tuple[Trace, ...]
    rewrites: tuple[RootRewrite, ...]
    expires: tuple[str, ...]
    refusals: tuple[str, ...]
    unreferenced: tuple[str, ...]
    texts_elsewhere: tuple[bytes, ...]
    outside: Outside

    @property
    def is_empty(self) -> bool:
        """Whether no file, and no row of the catalog, holds a key."""
        return not (self.traces or self.rewrites or self.outside.holds)

    def facts(self) -> dict[str, Any]:
        """Return the plan as JSON holds it."""
        return {
            "table": self.table,
            "keys": self.key_count,
            "searched": {"files": self.file_count, "bytes": self.byte_count},
            "files": [
                {"kind": item.kind, "path": item.path, "detail": item.detail, "rows": item.rows}
                for item in self.traces
            ],
            "unreadable": [{"path": item.path, "reason": item.detail} for item in self.unreadable],
            "rewrites": [
                {
                    "root": item.name,
                    "data_files": item.data_files,
                    "rows": item.rows,
                    "metadata_files": item.metadata_files,
                }
                for item in self.rewrites
            ],
            "expires": list(self.expires),
            "unreferenced": list(self.unreferenced),
            "refusals": list(self.refusals),
            "in_other_rows": [text.decode("utf-8", "replace") for text in self.texts_elsewhere],
            "catalog_searched": self.outside.has_catalog,
            "catalog_rows": self.outside.catalog_rows,
            "outside": [str(item) for item in self.outside.traces],
        }

    def lines(self) -> Iterator[str]:
        """Yield the plan line by line, for people."""
        yield (
            f"{counted(self.key_count, 'key')} of {self.table}: {counted(len(self.traces), 'file')} "
            f"{'holds' if len(self.traces) == 1 else 'hold'} one"
        )
        kinds: dict[str, int] = {}
        for trace in self.traces:
            kinds[trace.kind] = kinds.get(trace.kind, 0) + 1
        yield from (f"  {count} x {kind}" for kind, count in sorted(kinds.items()))
        yield from (f"written anew: {item}" for item in self.rewrites)
        yield from (f"goes, time travel to it is lost: {item}" for item in self.expires)
        yield from (f"named by nothing: {path}" for path in self.unreferenced)
        yield from (f"cannot be decoded: {item}" for item in self.unreadable)
        yield from self.outside.lines()
        yield from (
            f"{shown_text(text)} also stands in rows of other keys, which stay"
            for text in self.texts_elsewhere
        )
        yield from (f"refused: {item}" for item in self.refusals)

    def __str__(self) -> str:
        return "\n".join(self.lines())


def lines_of(session: TableSession) -> list[TableSession]:
    """Return the table and its branches, each as it is opened by its name."""
    store = BranchStore(session.file_io, session.paths)
    names = [name for name in store.directories() if store.exists(name)]
    return [session, *(on_branch(session, name) for name in names)]


def shown(branch: TableSession) -> str:
    """Return how a branch is called in plans."""
    name = branch.paths.branch_name
    return f"branch {name!r}" if name else "the table"


class RootFindings:
    """The traces that each retained reference names."""

    def __init__(self, keys: ForgottenKeys, files: KeyFiles, traces: frozenset[str]) -> None:
        self._keys = keys
        self._files = files
        self._traces = traces

    def rewrite(
        self, branch: TableSession, snapshot: Snapshot, name: str, *, is_tag: bool
    ) -> RootRewrite | None:
        """Return what has to be written anew of a retained reference; None: it holds no key."""
        live = branch.live_entries(snapshot)
        holding = self._files.holding(branch, live)
        names = (
            References(branch).tag_names(snapshot)
            if is_tag
            else References(branch).metadata_names(snapshot)
        )
        paths = set(metadata_paths(branch.paths, names)) & self._traces
        stale = list(indexes_with_hashes(branch, snapshot, self._keys, _without(live, holding)))
        is_named = not is_tag and branch.paths.snapshot_file(snapshot.id) in self._traces
        if not (holding or paths or stale or is_named):
            return None
        return RootRewrite(
            name=name,
            data_files=len(holding),
            rows=sum(len(positions) for _, positions in holding),
            metadata_files=len(paths) + len(stale),
        )

    def tags(self, branch: TableSession) -> list[tuple[Tag, RootRewrite]]:
        """Return the tags of a branch that hold a key."""
        rewrites = (
            (
                tag,
                self.rewrite(
                    branch, tag.snapshot, f"tag {tag.name!r} of {shown(branch)}", is_tag=True
                ),
            )
            for tag in branch.tags.stable_listing()
        )
        return [(tag, rewrite) for tag, rewrite in rewrites if rewrite is not None]

    def touch(self, branch: TableSession) -> bool:
        """Whether a key is in what the snapshots and changelogs of a branch name, or in themselves."""
        own = (branch.paths.snapshot_directory, branch.paths.changelog_directory)
        return any(
            path.startswith(f"{directory}/") for path in self._traces for directory in own
        ) or bool(self._traces & history_paths(branch))


def _without(live: Sequence[Any], holding: Sequence[tuple[Any, Any]]) -> list[Any]:
    deleted = {entry.identity for entry, _ in holding}
    return [entry for entry in live if entry.identity not in deleted]


def plan_forget(
    session: TableSession, keys: ForgottenKeys, scope: ForgetScope
) -> tuple[ForgetPlan, frozenset[str]]:
    """Look everywhere; return the plan, and the paths of the files that hold a key."""
    search = TraceSearch(session, keys)
    texts = texts_outside(session, keys)
    report = search.run(text for _, text in texts)
    traced = frozenset(trace.path for trace in report.traces)
    findings = RootFindings(keys, KeyFiles(keys), traced)
    rewrites: list[RootRewrite] = []
    expires: list[str] = []
    refusals: list[str] = []
    lines = lines_of(session)
    for branch in lines:
        own, expired, objections = _plan_branch(branch, findings, scope)
        rewrites += own
        expires += expired
        refusals += objections
    for name in left_branches(session, traced):
        age = scope.unreferenced_older_than
        objection = objection_to_taking(session, name, is_allowed=scope.rewrite_branches, age=age)
        refusals += [objection] if objection else []
        expires.append(f"what is left of branch {name!r}")
    trash = TrashStore(session.file_io, session.paths).list()
    if trash and (traced or rewrites):
        expires.append(f"{counted(len(trash), 'record')} of the trash")
    reachable = reachable_paths(session) if traced or report.unreadable else set()
    damaged = [
        trace_unreadable.path
        for trace_unreadable in report.unreadable
        if trace_unreadable.path in reachable
    ]
    if damaged:
        refusals.append(
            f"{counted(len(damaged), 'file')} that the table names cannot be decoded, such as {damaged[0]}; "
            "see verify(deep=True), and repair"
        )
    plan = ForgetPlan(
        table=session.name,
        key_count=keys.count,
        file_count=report.file_count,
        byte_count=report.byte_count,
        traces=report.traces,
        unreadable=report.unreadable,
        rewrites=tuple(rewrites),
        expires=tuple(expires),
        refusals=tuple(refusals),
        unreferenced=_unreferenced(report, reachable),
        texts_elsewhere=report.texts_elsewhere,
        outside=outside_of(
            session,
            keys.stored(emptied_partitions(session, keys)),
            (trace for trace, text in texts if text not in report.texts_elsewhere),
        ),
    )
    return plan, traced


def _unreferenced(report: SearchReport, reachable: set[str]) -> tuple[str, ...]:
    data = ("data file", "changelog file", "manifest", "manifest list", "index manifest")
    return tuple(
        trace.path
        for trace in (*report.traces, *report.unreadable)
        if trace.kind in data and trace.path not in reachable
    )


def _plan_branch(
    branch: TableSession, findings: RootFindings, scope: ForgetScope
) -> tuple[list[RootRewrite], list[str], list[str]]:
    """Return what of a branch is rewritten, what of it expires, and the refusals."""
    rewrites: list[RootRewrite] = []
    refusals: list[str] = []
    latest = branch.snapshots.latest()
    head = None
    if latest is not None:
        head = findings.rewrite(branch, latest, f"newest state of {shown(branch)}", is_tag=False)
    rewrites += [] if head is None else [head]
    tags = findings.tags(branch)
    rewrites += [rewrite for _, rewrite in tags]
    if tags and not scope.rewrite_tags:
        names = ", ".join(repr(tag.name) for tag, _ in tags)
        refusals.append(
            f"tags {names} of {shown(branch)} hold a key; allow rewrite_tags, or delete them"
        )
    holds = head is not None or findings.touch(branch)
    if branch.paths.branch_name and (holds or rewrites) and not scope.rewrite_branches:
        refusals.append(f"{shown(branch)} holds a key; allow rewrite_branches, or delete it")
    if holds and not scope.move_consumers:
        refusals += [
            f"consumer {name!r} of {shown(branch)} has not read all changes; let it, or allow "
            "move_consumers"
            for name in consumers_behind(branch)
        ]
    expired = list(_history(branch)) if holds else []
    return rewrites, expired, refusals


def _history(branch: TableSession) -> Iterator[str]:
    """Yield what expires of a branch's history: all but its newest state."""
    older = branch.snapshots.ids()[:-1]
    if older:
        yield f"snapshots {older[0]} to {older[-1]} of {shown(branch)}"
    latest = branch.snapshots.latest_id()
    if latest is not None:
        yield f"snapshot {latest} of {shown(branch)}, which a new one follows"
    changelogs = branch.changelogs.ids()
    if changelogs:
        yield f"changelogs {changelogs[0]} to {changelogs[-1]} of {shown(branch)}"


def consumers_behind(branch: TableSession, until: int | None = None) -> list[str]:
    """Return the consumers that have not read all changes of a branch; `until`: below this snapshot."""
    behind = []
    snapshots = branch.snapshots.stable_listing()
    for consumer in branch.consumers.list():
        unread = [
            snapshot
            for snapshot in snapshots
            if snapshot.id >= consumer.next_snapshot_id and (until is None or snapshot.id < until)
        ]
        if any(
            snapshot.commit_kind is not CommitKind.COMPACT
            or snapshot.changelog_manifest_list is not None
            for snapshot in unread
        ):
            behind.append(consumer.name)
    return behind
