"""Writes manifests and lists, and knows what lists record of a manifest."""

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.errors import AlreadyExistsError, CorruptFileError, InvalidInputError
from lsm_engine.base.modes import EntryKind
from lsm_engine.codec.avro_container import codec_named
from lsm_engine.codec.binary_row import decode_columns
from lsm_engine.codec.manifest_copies import ManifestCopier
from lsm_engine.codec.stats import StatsCollector, StatsMode
from lsm_engine.io.paths import SCHEMA_PREFIX
from lsm_engine.meta.manifest import ManifestEntry, ManifestFileMeta, fold, live_files
from lsm_engine.meta.stats import EMPTY_STATS, SimpleStats
from lsm_engine.plan.commit import CommitPlan, index_entries_after, rewrites_index
from lsm_engine.plan.manifest_merge import ENTRIES_MAX, MergeGroup, roll
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.store.manifests import WrittenFile
from lsm_engine.table.ground.live_files import (
    BUCKET,
    FILE_NAME,
    KIND,
    LEVEL,
    PARTITION,
    ROW_COUNT,
    TOTAL_BUCKETS,
    Mask,
    standing,
)
from lsm_engine.table.ground.session import TableSession

FIRST_ROW_ID = "_FILE._FIRST_ROW_ID"
META_COLUMNS = (KIND, PARTITION, BUCKET, TOTAL_BUCKETS, LEVEL, ROW_COUNT, FIRST_ROW_ID)
_FOLDED_COLUMNS = (*META_COLUMNS, FILE_NAME)
_WAITING_BYTES = 64 << 20
_AHEAD = 16  # manifests that are fetched beside the one that is copied
_BYTES_PER_ENTRY = 400
"""What an entry takes in a compressed manifest, before any has been written."""
_FEW_AFAR = 5_000  # they are kept, and their bytes would have to be fetched
_FEW_ENTRIES = 256  # those of so many are kept as they were read, and cost less as objects


class MetadataWriter:
    """Writes manifests and lists under names of its own, and remembers them."""

    def __init__(self, session: TableSession) -> None:
        self._session = session
        self._unique = session.ids.new_id()
        self._manifests = 0
        self._lists = 0
        self._codec = session.options[core_options.MANIFEST_COMPRESSION]
        self._waiting: dict[str, bytes] = {}
        self._put = self._waiting.__setitem__ if session.file_io.facts.is_far else None
        self.paths: list[str] = []
        self.checksums: dict[str, int] = {}  # of what snapshots name, by file name
        self.lists: dict[str, bytes] = {}  # what lists hold that are to be written from afar
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
        """Write at once what a far store has been spared until now."""
        if self._waiting:
            waiting = dict(self._waiting)
            self._waiting.clear()
            self._session.file_io.write_many(waiting)

    def _write_if_large(self) -> None:
        if sum(map(len, self._waiting.values())) > _WAITING_BYTES:
            self.write_waiting()

    def list(self, manifests: Sequence[ManifestFileMeta]) -> tuple[str, int]:
        """Write a manifest list; return its name and size."""
        name = f"manifest-list-{self._unique}-{self._lists}"
        self._lists += 1
        with self._own(name):
            written = self._session.manifests.write_list(
                name, manifests, codec=self._codec, put=self._put
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
                name, entries, codec=self._codec, put=self._put
            )
        self.checksums[name] = written.checksum
        return name

    def _manifests_of(self, entries: Sequence[ManifestEntry]) -> Sequence[ManifestFileMeta]:
        """Write entries as one manifest, or as several where readers would refuse one so large."""
        try:
            return [self._manifest(entries)]
        except InvalidInputError:
            if len(entries) == 1:
                raise
            half = len(entries) // 2
            return [*self._manifests_of(entries[:half]), *self._manifests_of(entries[half:])]

    def _manifest(self, entries: Sequence[ManifestEntry]) -> ManifestFileMeta:
        name = self._next_name()
        with self._own(name):
            written = self._session.manifests.write(name, entries, codec=self._codec, put=self._put)
            self._write_if_large()
        return manifest_meta(self._session.schema, name, written, _rows_of(entries))

    def merged(self, group: MergeGroup) -> Sequence[ManifestFileMeta]:
        """Write what the entries of some manifests fold into; of many the bytes are copied.

        What would become larger than readers take goes on as it is.
        """
        count = sum(meta.added_file_count + meta.deleted_file_count for meta in group.metas)
        if count <= (_FEW_AFAR if self._put is not None else _FEW_ENTRIES):
            return self.manifests(_as_objects(self._session, group))
        try:
            return list(self._copied(group))
        except InvalidInputError:
            if group.is_complete:
                raise
            return group.metas

    def _copied(self, group: MergeGroup) -> Iterator[ManifestFileMeta]:
        manifests = self._session.manifests
        parts = [
            manifests.read(meta, _FOLDED_COLUMNS, keeps=False)
            for meta in manifests.ahead(group.metas)
        ]
        entries = pa.concat_tables(parts)
        stands = standing(entries)
        if group.is_complete:
            _require_added(entries, stands)
        left = entries.filter(pa.array(stands))
        copier = ManifestCopier(
            codec=codec_named(self._codec),
            target_size_bytes=self._session.options[core_options.MANIFEST_TARGET_FILE_SIZE],
            entries_max=ENTRIES_MAX,
        )
        ends = np.cumsum([part.num_rows for part in parts])
        done = 0
        for data, number in self._pieces(group, copier, np.split(stands, ends[:-1])):
            yield self._placed(data, left.slice(done, number))
            done += number

    def _pieces(
        self, group: MergeGroup, copier: ManifestCopier, stands: Sequence[Mask]
    ) -> Iterator[tuple[bytes, int]]:
        left = [one for one in zip(group.metas, stands, strict=True) if one[1].any()]
        for (meta, some), content in zip(
            left, self._contents([meta for meta, _ in left]), strict=True
        ):
            path = self._session.paths.manifest(meta.file_name)
            yield from copier.add(content, some, file_name=path)
        yield from copier.remainder()

    def _contents(self, metas: Sequence[ManifestFileMeta]) -> Iterator[bytes]:
        """Yield the content of manifests, in order; of a far store the next ones are fetched meanwhile."""
        session = self._session
        paths = [session.paths.manifest(meta.file_name) for meta in metas]
        ahead = _AHEAD if session.file_io.facts.is_far else 0
        asked = 0
        try:
            for number, meta in enumerate(metas):
                for path in paths[asked : number + ahead]:
                    session.file_io.prefetch(path)
                asked = max(asked, number + ahead)
                yield session.manifests.content(meta.file_name, meta.checksum)
        finally:  # left, if somebody has stopped half way
            if ahead:
                session.file_io.forget_prefetched(paths)

    def _placed(self, data: bytes, entries: pa.Table) -> ManifestFileMeta:
        """Write a manifest that is encoded already."""
        name = self._next_name()
        with self._own(name):
            written = self._session.manifests.write_encoded(name, data, put=self._put)
            self._write_if_large()
        return manifest_meta(self._session.schema, name, written, entries)

    def _next_name(self) -> str:
        self._manifests += 1
        return f"manifest-{self._unique}-{self._manifests - 1}"

    @contextlib.contextmanager
    def _own(self, name: str) -> Iterator[None]:
        """Remember a file as ours, also half written; but not one that somebody else has written."""
        path = self._session.paths.manifest(name)
        self.paths.append(path)
        try:
            yield
        except (AlreadyExistsError, InvalidInputError):  # ours is not there
            self.paths.remove(path)
            raise


def manifest_meta(
    schema: TableSchema, name: str, written: WrittenFile, entries: pa.Table
) -> ManifestFileMeta:
    """Return what a manifest list records about a manifest, from META_COLUMNS of its entries."""
    deleted = int(entries.column(KIND).to_numpy().sum())
    buckets, levels, totals = (
        entries.column(one).to_numpy() for one in (BUCKET, LEVEL, TOTAL_BUCKETS)
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
