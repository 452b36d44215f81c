"""Write the manifests, manifest lists and index manifest of a commit."""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import (
    AlreadyExistsError,
    CorruptFileError,
    InvalidInputError,
    LsmError,
)
from lsm_engine.base.record import record
from lsm_engine.filter.partition import manifests_holding
from lsm_engine.format.avro.container import codec_named
from lsm_engine.format.binary_row import decode_columns
from lsm_engine.format.commit_message import CommitMessage, RewrittenManifests
from lsm_engine.format.data_file import EMPTY_STATS, SimpleStats
from lsm_engine.format.manifest import ManifestEntry, ManifestFileMeta, fold, live_files
from lsm_engine.format.manifest_file import ManifestCopier
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.stats import StatsCollector, StatsMode
from lsm_engine.metadata.manifests import WrittenFile
from lsm_engine.options import core_options
from lsm_engine.options.modes import EntryKind
from lsm_engine.planning.commit import (
    ENTRIES_MAX,
    CommitPlan,
    ManifestGroup,
    ManifestMerge,
    MergeGroup,
    SnapshotFiles,
    changed_manifests,
    index_entries_after,
    plan_full_merge,
    plan_manifest_merge,
    rewrites_index,
    roll,
)
from lsm_engine.planning.snapshot_chain import CLOCK_DRIFT_MAX_MILLIS, is_far_ahead
from lsm_engine.storage.bulk import forget_prefetched, prefetch, write_many
from lsm_engine.storage.paths import SCHEMA_PREFIX
from lsm_engine.table.bucket_context import BucketContext, delete_quietly
from lsm_engine.table.live_files import (
    BUCKET,
    FILE_NAME,
    KIND,
    LEVEL,
    PARTITION,
    ROW_COUNT,
    TOTAL_BUCKETS,
    Mask,
    live_mask,
    standing,
)
from lsm_engine.table.session import TableSession
from lsm_engine.types.table_schema import TableSchema

FIRST_ROW_ID = "_FILE._FIRST_ROW_ID"
META_COLUMNS = (KIND, PARTITION, BUCKET, TOTAL_BUCKETS, LEVEL, ROW_COUNT, FIRST_ROW_ID)
_FOLDED_COLUMNS = (*META_COLUMNS, FILE_NAME)
_WAITING_BYTES = 64 << 20
_AHEAD = 16  # manifests that are fetched while another one is copied
_BYTES_PER_ENTRY = 400
"""The assumed size of an entry in a compressed manifest, before one has been written."""
_FEW_REMOTE_ENTRIES = 5_000
"""On a remote store a merge of up to so many entries uses the cached ones: copying bytes would fetch the manifests."""
_FEW_ENTRIES = 256
"""On a local disk up to so many entries are cheaper to encode again from the cache than to copy."""


class MetadataWriter:
    """Writes manifests and lists under unique names, and remembers their paths and checksums."""

    def __init__(self, session: TableSession) -> None:
        self._session = session
        self._unique = session.ids.new_id()
        self._manifests = 0
        self._lists = 0
        self._codec = session.options[core_options.MANIFEST_COMPRESSION]
        self._waiting: dict[str, bytes] = {}
        # A remote store gets the small files concurrently, in one round; a disk gains nothing by that.
        self._put = self._waiting.__setitem__ if session.file_io.facts.is_remote else None
        self.paths: list[str] = []
        self.checksums: dict[str, int] = {}  # of what snapshots name, by file name
        self.lists: dict[
            str, bytes
        ] = {}  # the content of manifest lists, which a snapshot on a remote store copies
        if session.schema_checksum is not None:
            self.checksums[f"{SCHEMA_PREFIX}{session.schema.id}"] = session.schema_checksum

    def manifests(self, entries: Sequence[ManifestEntry]) -> list[ManifestFileMeta]:
        """Write entries as manifests of about the target size."""
        pieces = roll(
            entries,
            bytes_per_entry=_BYTES_PER_ENTRY,
            target_size_bytes=self._session.options[core_options.MANIFEST_TARGET_FILE_SIZE],
        )
        return [meta for piece in pieces for meta in self._manifests_of(piece)]

    def write_waiting(self) -> None:
        """Write the waiting files to the remote store concurrently."""
        if self._waiting:
            waiting = dict(self._waiting)
            self._waiting.clear()
            write_many(self._session.file_io, waiting)

    def _write_if_large(self) -> None:
        # Waiting files are held in memory.
        if sum(map(len, self._waiting.values())) > _WAITING_BYTES:
            self.write_waiting()

    def list(self, manifests: Sequence[ManifestFileMeta]) -> tuple[str, int]:
        """Write a manifest list; return its name and size."""
        name = f"manifest-list-{self._unique}-{self._lists}"
        self._lists += 1
        with self._own(name):
            written = self._session.manifests.write_list(
                name, manifests, codec=self._codec, write_file=self._put
            )
        self.checksums[name] = written.checksum
        if self._put is not None:
            self.lists[name] = self._waiting[self._session.paths.manifest(name)]
        return name, written.size

    def index(self, plan: CommitPlan) -> str | None:
        """Write the index manifest if the commit changes it; return its name."""
        if not rewrites_index(plan):
            return None
        existing = [] if plan.base is None else self._session.index_entries(plan.base)
        name = f"index-manifest-{self._unique}-0"
        entries = index_entries_after(existing, plan)
        with self._own(name):
            written = self._session.manifests.write_index(
                name, entries, codec=self._codec, write_file=self._put
            )
        self.checksums[name] = written.checksum
        return name

    def _manifests_of(self, entries: Sequence[ManifestEntry]) -> Sequence[ManifestFileMeta]:
        """Write entries as one manifest, or as several where readers would refuse one so large."""
        try:
            return [self._manifest(entries)]
        except InvalidInputError:
            # The manifest would be larger than readers take; its halves are smaller.
            if len(entries) == 1:
                raise
            half = len(entries) // 2
            return [*self._manifests_of(entries[:half]), *self._manifests_of(entries[half:])]

    def _manifest(self, entries: Sequence[ManifestEntry]) -> ManifestFileMeta:
        name = self._next_name()
        with self._own(name):
            written = self._session.manifests.write(
                name, entries, codec=self._codec, write_file=self._put
            )
            self._write_if_large()
        return manifest_meta(self._session.schema, name, written, _rows_of(entries))

    def merged(self, group: MergeGroup) -> Sequence[ManifestFileMeta]:
        """Write the folded entries of some manifests; the bytes of many entries are copied, not encoded again.

        Manifests whose merge would be larger than readers accept stay as they are.
        """
        count = sum(meta.added_file_count + meta.deleted_file_count for meta in group.metas)
        # Decoding and encoding many entries would take most of the commit.
        if count <= (_FEW_REMOTE_ENTRIES if self._put is not None else _FEW_ENTRIES):
            return self.manifests(_as_objects(self._session, group))
        try:
            return list(self._copied(group))
        except InvalidInputError:
            # A merge only saves reads, unless it has to be complete: the manifests stay as they
            # are.
            if group.is_complete:
                raise
            return group.metas

    def _copied(self, group: MergeGroup) -> Iterator[ManifestFileMeta]:
        parts = self._parts(group.metas)
        entries = pa.concat_tables(parts)
        stands = standing(entries)
        if group.is_complete:
            _require_added(entries, stands)
        ends = np.cumsum([part.num_rows for part in parts])
        yield from self._copies(group.metas, parts, np.split(stands, ends[:-1]))

    def rewritten(self, group: ManifestGroup, deletes: pa.Table | None) -> RewrittenManifests:
        """Write the live entries of a group of manifests. `deletes`: the deleted files of the whole base."""
        parts = self._parts(group.metas)
        stands = [live_mask(part, deletes) for part in parts]
        counts = (
            part.column(ROW_COUNT).to_numpy()[mask].sum()
            for part, mask in zip(parts, stands, strict=True)
        )
        return RewrittenManifests(
            group=group.number,
            row_count=int(sum(counts)),
            manifests=tuple(self._copies(group.metas, parts, stands)),
        )

    def _parts(self, metas: Sequence[ManifestFileMeta]) -> Sequence[pa.Table]:
        manifests = self._session.manifests
        return [
            manifests.read(meta, _FOLDED_COLUMNS, keeps=False) for meta in manifests.ahead(metas)
        ]

    def _copies(
        self, metas: Sequence[ManifestFileMeta], parts: Sequence[pa.Table], stands: Sequence[Mask]
    ) -> Iterator[ManifestFileMeta]:
        """Write the entries of manifests that stand; `parts`: _FOLDED_COLUMNS of all of them."""
        live = pa.concat_tables(
            part.filter(pa.array(mask)) for part, mask in zip(parts, stands, strict=True)
        )
        copier = ManifestCopier(
            codec=codec_named(self._codec),
            target_size_bytes=self._session.options[core_options.MANIFEST_TARGET_FILE_SIZE],
            entries_max=ENTRIES_MAX,
        )
        done = 0
        for data, number in self._pieces(metas, copier, stands):
            yield self._placed(data, live.slice(done, number))
            done += number

    def _pieces(
        self, metas: Sequence[ManifestFileMeta], copier: ManifestCopier, stands: Sequence[Mask]
    ) -> Iterator[tuple[bytes, int]]:
        live = [pair for pair in zip(metas, stands, strict=True) if pair[1].any()]
        for (meta, mask), content in zip(
            live, self._contents([meta for meta, _ in live]), strict=True
        ):
            path = self._session.paths.manifest(meta.file_name)
            yield from copier.add(content, mask, file_name=path)
        yield from copier.remainder()

    def _contents(self, metas: Sequence[ManifestFileMeta]) -> Iterator[bytes]:
        """Yield the content of manifests, in order; of a remote store the next ones are fetched meanwhile."""
        session = self._session
        paths = [session.paths.manifest(meta.file_name) for meta in metas]
        ahead = _AHEAD if session.file_io.facts.is_remote else 0
        requested = 0
        try:
            for number, meta in enumerate(metas):
                for path in paths[requested : number + ahead]:
                    prefetch(session.file_io, path)
                requested = max(requested, number + ahead)
                yield session.manifests.content(meta.file_name, meta.checksum)
        finally:  # the consumer may stop half way
            if ahead:
                forget_prefetched(session.file_io, paths)

    def _placed(self, data: bytes, entries: pa.Table) -> ManifestFileMeta:
        """Write a manifest that is encoded already."""
        name = self._next_name()
        with self._own(name):
            written = self._session.manifests.write_encoded(name, data, write_file=self._put)
            self._write_if_large()
        return manifest_meta(self._session.schema, name, written, entries)

    def _next_name(self) -> str:
        self._manifests += 1
        return f"manifest-{self._unique}-{self._manifests - 1}"

    @contextlib.contextmanager
    def _own(self, name: str) -> Iterator[None]:
        """Remember a file that is about to be written, for deletion, unless another process has written it."""
        path = self._session.paths.manifest(name)
        self.paths.append(path)
        try:
            yield
        except (AlreadyExistsError, InvalidInputError):  # nothing was written under this name
            self.paths.remove(path)
            raise


def manifest_meta(
    schema: TableSchema, name: str, written: WrittenFile, entries: pa.Table
) -> ManifestFileMeta:
    """Return what a manifest list records about a manifest, from META_COLUMNS of its entries."""
    deleted = int(entries.column(KIND).to_numpy().sum())
    buckets, levels, totals = (
        entries.column(name_of_column).to_numpy()
        for name_of_column in (BUCKET, LEVEL, TOTAL_BUCKETS)
    )
    first_ids = entries.column(FIRST_ROW_ID)
    has_ids = not first_ids.null_count
    firsts = first_ids.to_numpy() if has_ids else None
    return ManifestFileMeta(
        file_name=name,
        file_size=written.size,
        checksum=written.checksum,
        added_file_count=entries.num_rows - deleted,
        deleted_file_count=deleted,
        partition_stats=_partition_stats(schema, entries.column(PARTITION)),
        schema_id=schema.id,
        min_bucket=int(buckets.min()),
        max_bucket=int(buckets.max()),
        min_level=int(levels.min()),
        max_level=int(levels.max()),
        min_row_id=None if firsts is None else int(firsts.min()),
        max_row_id=None
        if firsts is None
        else int((firsts + entries.column(ROW_COUNT).to_numpy() - 1).max()),
        total_buckets=int(totals[0]) if (totals == totals[0]).all() else None,
    )


def _partition_stats(schema: TableSchema, partitions: pa.ChunkedArray) -> SimpleStats:
    fields = schema.select(schema.partition_keys)
    if not fields:
        return EMPTY_STATS
    types = [field.type for field in fields]
    collector = StatsCollector(types, [StatsMode.parse("full")] * len(types))
    collector.update(decode_columns(partitions.combine_chunks(), types))
    return collector.result()


def rewrite_manifests(
    context: BucketContext, deletes: pa.Table | None, group: ManifestGroup
) -> CommitMessage:
    """Write a group of manifests anew, in a task of any executor. What fails leaves no file behind."""
    writer = MetadataWriter(TableSession.from_context(context))
    try:
        rewritten = writer.rewritten(group, deletes)
        writer.write_waiting()
    except LsmError:
        # The driver never learns the names of these files.
        delete_quietly(context.file_io, writer.paths)
        raise
    return CommitMessage(partition=b"", bucket=0, total_buckets=0, rewritten=rewritten)


def _rows_of(entries: Sequence[ManifestEntry]) -> pa.Table:
    """Return META_COLUMNS of entries."""
    files = [entry.file for entry in entries]
    return pa.table(
        {
            KIND: [entry.kind.value for entry in entries],
            PARTITION: pa.array([entry.partition for entry in entries], pa.binary()),
            BUCKET: [entry.bucket for entry in entries],
            TOTAL_BUCKETS: [entry.total_buckets for entry in entries],
            LEVEL: [file.level for file in files],
            ROW_COUNT: [file.row_count for file in files],
            FIRST_ROW_ID: pa.array([file.first_row_id for file in files], pa.int64()),
        }
    )


def _as_objects(session: TableSession, group: MergeGroup) -> list[ManifestEntry]:
    entries = (entry for meta in group.metas for entry in session.manifests.read_entries(meta))
    return live_files(entries) if group.is_complete else fold(entries)


def _require_added(entries: pa.Table, stands: Mask) -> None:
    """Raise CorruptFileError if a DELETE of a whole history has no ADD before it."""
    deletes = stands & (entries.column(KIND).to_numpy() == EntryKind.DELETE)
    if deletes.any():
        raise CorruptFileError(
            "a manifest deletes a file that no manifest added; run verify",
            file=entries.column(FILE_NAME)[int(deletes.argmax())].as_py(),
        )


# -- The metadata files of one commit attempt ------------------------------------------------------
#
# Manifests, lists, and the merging of old manifests.

log = logging.getLogger(__name__)
_PLACE_COLUMNS = (KIND, PARTITION, BUCKET, LEVEL, FILE_NAME)


@record
class WrittenMetadata:
    """The metadata files of a commit attempt; no snapshot names them until the publish.

    `change_paths` hold what `plan` adds to its base; the next attempt uses them again if it adds the same to another
    base. `base_paths` describe the base.
    """

    plan: CommitPlan
    files: SnapshotFiles
    base: tuple[ManifestFileMeta, ...]
    delta: tuple[ManifestFileMeta, ...]
    changelog: tuple[ManifestFileMeta, ...]
    change_paths: tuple[str, ...]
    base_paths: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """All of the files."""
        return (*self.change_paths, *self.base_paths)

    def fits(self, plan: CommitPlan) -> bool:
        """Whether a plan adds the same entries."""
        mine = self.plan
        return (mine.delta, mine.step.changelog) == (plan.delta, plan.step.changelog)


def write_metadata(
    session: TableSession, plan: CommitPlan, lost: WrittenMetadata | None = None
) -> WrittenMetadata:
    """Write every metadata file that the snapshot of a plan will name, and delete them if that fails.

    `lost`: the files of the former attempt, on another base; those that fit are used again, the others deleted.
    """
    rewritten = _rewritten_paths(session, plan)
    if lost is not None:
        # The commit mostly adds the same on the next base: only the files that describe the base are new.
        fits = lost.fits(plan)
        unused = lost.base_paths if fits else lost.paths
        session.delete_quietly(path for path in unused if path not in rewritten)
        lost = lost if fits else None
    writer = MetadataWriter(session)
    writer.paths += rewritten
    try:
        warn_of_clocks(session, plan.base)
        if plan.base is not None:
            session.check_index_manifest(plan.base)
        change = lost or _written_change(writer, plan)
        before = len(writer.paths)
        base = _base(session, plan, writer)
        base_list, base_size = writer.list(base)
        index = writer.index(plan)
        writer.write_waiting()
    except BaseException as error:
        # No snapshot names them. After a kill or an interrupt the removal of orphan files has them.
        if isinstance(error, Exception):
            session.delete_quietly([*(lost.change_paths if lost else ()), *writer.paths])
        raise
    files = replace(
        change.files,
        base_manifest_list=base_list,
        base_manifest_list_size=base_size,
        index_manifest=index,
        named_manifests=(*base, *change.delta) if session.file_io.facts.is_remote else (),
        lists={**change.files.lists, **writer.lists},
        checksums={
            name: checksum
            for name, checksum in {**change.files.checksums, **writer.checksums}.items()
            if name not in _superseded(change.files)
        },
    )
    written = (*rewritten, *writer.paths[before:])
    return replace(change, plan=plan, files=files, base=tuple(base), base_paths=written)


def _rewritten_paths(session: TableSession, plan: CommitPlan) -> list[str]:
    """Return the manifests of the base that were written before the plan was made."""
    rewritten = plan.change.rewritten
    metas = () if rewritten is None else rewritten.manifests
    return [session.paths.manifest(meta.file_name) for meta in metas]


def _superseded(files: SnapshotFiles) -> tuple[str | None, ...]:
    """Return the names of files that describe the base of a former attempt."""
    return files.base_manifest_list, files.index_manifest


def _written_change(writer: MetadataWriter, plan: CommitPlan) -> WrittenMetadata:
    """Write what a plan adds to its base; the caller fills in the fields that describe the base."""
    before = len(writer.paths)
    delta = writer.manifests(plan.delta)
    changelog = writer.manifests(plan.step.changelog)
    delta_list, delta_size = writer.list(delta)
    changelog_list, changelog_size = writer.list(changelog) if changelog else (None, None)
    return WrittenMetadata(
        plan=plan,
        files=SnapshotFiles(
            base_manifest_list="",
            base_manifest_list_size=0,
            delta_manifest_list=delta_list,
            delta_manifest_list_size=delta_size,
            changelog_manifest_list=changelog_list,
            changelog_manifest_list_size=changelog_size,
            checksums=dict(writer.checksums),
            lists=dict(writer.lists),
        ),
        base=(),
        delta=tuple(delta),
        changelog=tuple(changelog),
        change_paths=tuple(writer.paths[before:]),
    )


def discard_metadata(session: TableSession, written: WrittenMetadata | None) -> None:
    """Delete the metadata of attempts that are known to be lost."""
    if written is not None:
        session.delete_quietly(written.paths)


def _base(
    session: TableSession, plan: CommitPlan, writer: MetadataWriter
) -> list[ManifestFileMeta]:
    """Return the manifests of the base, merged where that is due, or all of them written anew."""
    if plan.base is None:
        return []
    metas = session.manifest_metas(plan.base)
    if plan.change.rewritten is not None:
        return plan.change.rewritten.replaced(metas)
    # An addition of a file that was deleted before needs manifests without that deletion.
    if plan.change.rewrites_manifests or _adds_again(session, plan, metas):
        return writer.manifests(session.live_entries(plan.base))
    merge = _planned_merge(session, metas)
    base: list[ManifestFileMeta] = []
    for part in merge.parts:
        if isinstance(part, MergeGroup):
            base += writer.merged(part)
        else:
            base.append(part.meta)
    return base


def _adds_again(session: TableSession, plan: CommitPlan, metas: Iterable[ManifestFileMeta]) -> bool:
    """Whether a file is added to a level that it was deleted from before, as by a compaction after a restore.

    Readers fold entries without looking at their order: the old DELETE would take the file away again. Only
    files that change their level can be added again, as all others have new names.
    """
    added = {entry.identity for entry in plan.delta if entry.kind is EntryKind.ADD}
    deleted = {
        (entry.partition, entry.bucket, entry.file.file_name)
        for entry in plan.delta
        if entry.kind is EntryKind.DELETE
    }
    added_again = {
        identity for identity in added if (identity[0], identity[1], identity[3]) in deleted
    }
    return bool(added_again) and any(
        entry.kind is EntryKind.DELETE and entry.identity in added_again
        for meta in metas
        if meta.deleted_file_count
        for entry in session.manifests.read_entries(meta)
    )


def _planned_merge(session: TableSession, metas: Sequence[ManifestFileMeta]) -> ManifestMerge:
    options = session.options
    target = options[core_options.MANIFEST_TARGET_FILE_SIZE]
    rewritten = changed_manifests(
        metas, full_threshold_bytes=options[core_options.MANIFEST_FULL_COMPACTION_SIZE]
    )
    if not rewritten:
        return plan_manifest_merge(
            metas,
            target_size_bytes=target,
            min_count=options[core_options.MANIFEST_MERGE_MIN_COUNT],
        )
    entries = pa.concat_tables(
        session.manifests.read(meta, _PLACE_COLUMNS, keeps=False)
        for meta in session.manifests.ahead(rewritten)
    )
    deletes = entries.filter(
        pa.array(standing(entries) & (entries.column(KIND).to_numpy() == EntryKind.DELETE))
    )
    fields = session.schema.select(session.schema.partition_keys)
    return plan_full_merge(
        metas,
        list(
            zip(
                *(deletes.column(column).to_pylist() for column in (PARTITION, BUCKET, LEVEL)),
                strict=True,
            )
        ),
        target_size_bytes=target,
        may_hold=lambda manifests, partitions: manifests_holding(manifests, partitions, fields),
    )


def warn_of_clocks(session: TableSession, base: Snapshot | None) -> None:
    """Log a warning where this machine's clock, or the one that stamped the base, is far off.

    The storage's clock is asked only if the base's time and ours are more than a day apart.
    """
    now = session.clock.now_millis()
    before = session.schema.time_millis if base is None else base.time_millis
    if abs(now - before) <= CLOCK_DRIFT_MAX_MILLIS:
        return
    if base is not None and is_far_ahead(before, now):
        log.warning(
            "snapshot %d of table %s is stamped %d ms ahead of this machine's clock; the next one is "
            "stamped by this clock, so that expiry by time goes on",
            base.id,
            session.name,
            before - now,
        )
    by_storage = session.file_io.now_millis()
    if abs(now - by_storage) > CLOCK_DRIFT_MAX_MILLIS:
        log.warning(
            "this machine's clock and the storage's are %d ms apart; table %s is stamped by this one: "
            "set it right, or time travel and expiry by time go wrong",
            now - by_storage,
            session.name,
        )
