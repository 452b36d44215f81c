"""The life of files and keys as facts: commits, levels, pins, and what a retention would keep."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from lsm_engine.base.record import record
from lsm_engine.base.units import counted, format_bytes
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.manifest import PhysicalFile
from lsm_engine.planning.expire import ExpirePlan
from lsm_engine.planning.retention import Retention

# -- The life of one data file by snapshots and tags -----------------------------------------------
#
# Levels, its commit, sources, successors, pins.


@record
class Commit:
    """A snapshot in the life of a file. `kind`: APPEND, COMPACT, …; time in ms UTC."""

    snapshot_id: int
    kind: str
    time_millis: int


@record
class FileStage:
    """The file on one level. `added_by` None: before the oldest snapshot left; `deleted_by`: live."""

    level: int
    added_by: Commit | None
    deleted_by: Commit | None


@record
class FileExplanation:
    """Where a data or changelog file came from, what became of it, and what keeps it on disk.

    `made_from` and `became`: names of the files that a compaction read, or wrote, where that
    compaction's snapshot is left. `snapshots`: ids of those that hold it; `tags`, `branches`: names.
    """

    table: str
    partition: str
    bucket: int
    path: str
    content: str  # "data" or "changelog"
    file: DataFileMeta
    is_stored: bool
    is_live: bool
    stages: tuple[FileStage, ...]
    made_from: tuple[str, ...]
    became: tuple[str, ...]
    snapshots: tuple[int, ...]
    tags: tuple[str, ...]
    branches: tuple[str, ...] = ()

    @property
    def pinned_by(self) -> tuple[str, ...]:
        """The references that must expire before the file is deleted, in words."""
        holders = [f"snapshots {ranges(self.snapshots)}"] if self.snapshots else []
        holders += [f"tag {name!r}" for name in self.tags]
        return (*holders, *(f"branch {name!r}" for name in self.branches))

    @property
    def verdict(self) -> str:
        """One sentence: why the file is still there, or that nothing needs it."""
        if self.is_live:
            return "live: the newest snapshot reads it"
        if self.pinned_by:
            return f"history: kept by {', '.join(self.pinned_by)}; goes with the last of them"
        if not self.is_stored:
            return "gone: nothing needed it any more, and it was deleted"
        return "nothing needs it any more: the next expiry or orphan removal takes it"

    def text(self) -> str:
        """Render for people."""
        file = self.file
        lines = [
            f"{self.table}, {self.content} file {file.file_name}",
            f"  {self.path}{'' if self.is_stored else '  (not on disk)'}",
            f"  {counted(file.row_count, 'row')}, {format_bytes(file.file_size)}, sequence numbers "
            f"{file.min_sequence_number} to {file.max_sequence_number}, schema {file.schema_id}",
        ]
        lines += [f"  level {stage.level}: {_stage_text(stage)}" for stage in self.stages]
        if self.made_from:
            lines.append(f"  made from {', '.join(self.made_from)}")
        if self.became:
            lines.append(f"  became {', '.join(self.became)}")
        return "\n".join([*lines, f"  {self.verdict}"])

    def __str__(self) -> str:
        return self.text()


def ranges(ids: Iterable[int]) -> str:
    """Return ascending numbers in short: "1-4, 7"."""
    runs: list[list[int]] = [
        [number for _, number in group]
        for _, group in groupby(enumerate(sorted(ids)), key=lambda pair: pair[1] - pair[0])
    ]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def holding(stages: Sequence[FileStage], ids: Sequence[int]) -> tuple[int, ...]:
    """Return the snapshots, of those that are left, whose state holds a file with these stages."""
    return tuple(
        number
        for number in ids
        if any(
            (stage.added_by is None or stage.added_by.snapshot_id <= number)
            and (stage.deleted_by is None or number < stage.deleted_by.snapshot_id)
            for stage in stages
        )
    )


def _stage_text(stage: FileStage) -> str:
    added, deleted = stage.added_by, stage.deleted_by
    since = "from before the oldest snapshot" if added is None else _commit_text("added by", added)
    return since + ("" if deleted is None else f", {_commit_text('taken out by', deleted)}")


def _commit_text(verb: str, commit: Commit) -> str:
    return f"{verb} snapshot {commit.snapshot_id} ({commit.kind})"


# -- Retention pins --------------------------------------------------------------------------------
#
# What a retention would leave readable, what it would free, and what each retained reference keeps on disk.


@record
class RootPin:
    """History that one retained reference keeps: data files that the newest snapshot no longer reads.

    `only_*`: those that no other retained reference keeps, so what deleting this one would free.
    """

    name: str
    file_count: int
    size_bytes: int
    only_file_count: int
    only_size_bytes: int


@record
class RetentionSimulation:
    """The result of a simulated expiry with `retention` at `at_millis`.

    `readable`: snapshot ids left; `tags`: names that stay readable. `pins`: retained references that keep history,
    the one whose removal frees most first. `plan` is what expiry itself would carry out, `changelogs`
    the same for changelogs that have outlived their snapshots.
    """

    table: str
    retention: Retention
    at_millis: int
    readable: tuple[int, ...]
    tags: tuple[str, ...]
    expired_tags: tuple[str, ...]
    plan: ExpirePlan
    changelogs: ExpirePlan | None
    pins: tuple[RootPin, ...]

    @property
    def expired(self) -> tuple[int, ...]:
        """Ids of the snapshots that would expire."""
        return tuple(snapshot.id for snapshot in self.plan.expired)

    @property
    def freed_file_count(self) -> int:
        """Data and changelog files that would be deleted."""
        return sum(len(plan.data_files) + len(plan.changelog_files) for plan in self._plans)

    @property
    def freed_bytes(self) -> int:
        """Bytes of data and changelog files that would be deleted."""
        return sum(plan.freed_bytes for plan in self._plans)

    @property
    def _plans(self) -> tuple[ExpirePlan, ...]:
        return (self.plan,) if self.changelogs is None else (self.plan, self.changelogs)

    def text(self) -> str:
        """Render for people."""
        lines = [
            f"{self.table} under this retention",
            f"  readable: snapshots {ranges(self.readable) or 'none'}"
            + (f"; tags {', '.join(self.tags)}" if self.tags else "; no tags")
            + (f"; tags over: {', '.join(self.expired_tags)}" if self.expired_tags else ""),
            f"  would expire: snapshots {ranges(self.expired) or 'none'}; {self.plan.reason}",
            f"  would free: {counted(self.freed_file_count, 'file')}, {format_bytes(self.freed_bytes)}",
        ]
        lines += [
            f"  {pin.name} keeps {counted(pin.file_count, 'file')}, {format_bytes(pin.size_bytes)}; "
            f"alone {pin.only_file_count}, {format_bytes(pin.only_size_bytes)}"
            for pin in self.pins
        ]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()


def pins_of(history: Mapping[str, Mapping[PhysicalFile, int]]) -> tuple[RootPin, ...]:
    """Return what each retained reference keeps of the files that the newest snapshot does not read.

    `history`: of each reference by name, such files with their bytes.
    """
    holders = Counter(file for sizes in history.values() for file in sizes)
    pins = [
        RootPin(
            name=name,
            file_count=len(sizes),
            size_bytes=sum(sizes.values()),
            only_file_count=sum(holders[file] == 1 for file in sizes),
            only_size_bytes=sum(size for file, size in sizes.items() if holders[file] == 1),
        )
        for name, sizes in history.items()
        if sizes
    ]
    return tuple(sorted(pins, key=lambda pin: (-pin.only_size_bytes, -pin.size_bytes, pin.name)))


# -- Versions of one key ---------------------------------------------------------------------------

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
