"""The metadata files of one commit attempt: manifests, lists, and the merging of old manifests."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.modes import EntryKind
from lsm_engine.base.record import record
from lsm_engine.meta.manifest import ManifestFileMeta
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.commit import CommitPlan, SnapshotFiles
from lsm_engine.plan.manifest_merge import (
    ManifestMerge,
    MergeGroup,
    changed_manifests,
    plan_full_merge,
    plan_manifest_merge,
)
from lsm_engine.plan.snapshot_time import CLOCK_DRIFT_MAX_MILLIS, is_far_ahead
from lsm_engine.prune.partition import manifests_holding
from lsm_engine.table.commit.metadata_writer import MetadataWriter
from lsm_engine.table.ground.live_files import BUCKET, FILE_NAME, KIND, LEVEL, PARTITION, standing
from lsm_engine.table.ground.session import TableSession

log = logging.getLogger(__name__)
_PLACE_COLUMNS = (KIND, PARTITION, BUCKET, LEVEL, FILE_NAME)


@record
class WrittenMetadata:
    """What attempts at a commit wrote; nothing names these files until the publish.

    Those in `change_paths` hold what `plan` adds to its base: they fit another base, too, as long as
    it adds the same there. Those in `base_paths` are about the base.
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
    """Write everything that the snapshot of a plan will name; deletes it again if that fails.

    `lost`: what an attempt on another base wrote; what fits is named again, and the rest deleted.
    """
    warn_of_clocks(session, plan.base)
    if lost is not None:
        fits = lost.fits(plan)
        _delete(session, lost.base_paths if fits else lost.paths)
        lost = lost if fits else None
    writer = MetadataWriter(session)
    try:
        if plan.base is not None:
            session.check_index_manifest(plan.base)
        change = lost or _written_change(writer, plan)
        before = len(writer.paths)
        base = _base(session, plan, writer)
        base_list, base_size = writer.list(base)
        index = writer.index(plan)
        writer.write_waiting()
    except BaseException as error:
        if isinstance(error, Exception):
            _delete(session, [*(lost.change_paths if lost else ()), *writer.paths])
        raise
    files = replace(
        change.files,
        base_manifest_list=base_list,
        base_manifest_list_size=base_size,
        index_manifest=index,
        named_manifests=(*base, *change.delta) if session.file_io.facts.is_far else (),
        lists={**change.files.lists, **writer.lists},
        checksums={
            name: checksum
            for name, checksum in {**change.files.checksums, **writer.checksums}.items()
            if name not in _superseded(change.files)
        },
    )
    written = tuple(writer.paths[before:])
    return replace(change, plan=plan, files=files, base=tuple(base), base_paths=written)


def _superseded(files: SnapshotFiles) -> tuple[str | None, ...]:
    """Return what an attempt on another base named, and this one does not."""
    return files.base_manifest_list, files.index_manifest


def _written_change(writer: MetadataWriter, plan: CommitPlan) -> WrittenMetadata:
    """Write what a plan adds to its base; what is about the base is filled in by the caller."""
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
        change_paths=tuple(writer.paths),
    )


def discard_metadata(session: TableSession, written: WrittenMetadata | None) -> None:
    """Delete the metadata of attempts that are known to be lost."""
    if written is not None:
        _delete(session, written.paths)


def _base(
    session: TableSession, plan: CommitPlan, writer: MetadataWriter
) -> list[ManifestFileMeta]:
    """Return the manifests of the base, merged where that is due, or all of them written anew."""
    if plan.base is None:
        return []
    metas = session.manifest_metas(plan.base)
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
    """Whether a file comes to a level that it was taken from before, as by a compaction after a restore.

    Readers fold entries without looking at their order: the deletion would take it away again. Only files
    that change their level can come back, as all others have new names.
    """
    added = {entry.identity for entry in plan.delta if entry.kind is EntryKind.ADD}
    left = {
        (entry.partition, entry.bucket, entry.file.file_name)
        for entry in plan.delta
        if entry.kind is EntryKind.DELETE
    }
    again = {one for one in added if (one[0], one[1], one[3]) in left}
    return bool(again) and any(
        entry.kind is EntryKind.DELETE and entry.identity in again
        for meta in metas
        if meta.deleted_file_count
        for entry in session.manifests.read_entries(meta)
    )


def _planned_merge(session: TableSession, metas: Sequence[ManifestFileMeta]) -> ManifestMerge:
    options = session.options
    target = options[core_options.MANIFEST_TARGET_FILE_SIZE]
    changed = changed_manifests(
        metas, full_threshold_bytes=options[core_options.MANIFEST_FULL_COMPACTION_SIZE]
    )
    if not changed:
        return plan_manifest_merge(
            metas,
            target_size_bytes=target,
            min_count=options[core_options.MANIFEST_MERGE_MIN_COUNT],
        )
    entries = pa.concat_tables(
        session.manifests.read(meta, _PLACE_COLUMNS, keeps=False)
        for meta in session.manifests.ahead(changed)
    )
    left = entries.filter(
        pa.array(standing(entries) & (entries.column(KIND).to_numpy() == EntryKind.DELETE))
    )
    fields = session.schema.select(session.schema.partition_keys)
    return plan_full_merge(
        metas,
        list(
            zip(*(left.column(one).to_pylist() for one in (PARTITION, BUCKET, LEVEL)), strict=True)
        ),
        target_size_bytes=target,
        may_hold=lambda some, partitions: manifests_holding(some, partitions, fields),
    )


def _delete(session: TableSession, paths: Iterable[str]) -> None:
    session.delete_quietly(paths)


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
