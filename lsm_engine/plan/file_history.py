"""The life of one data file by snapshots and tags: levels, its commit, sources, successors, pins."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from lsm_engine.base.record import record
from lsm_engine.base.units import counted, format_bytes
from lsm_engine.meta.data_file import DataFileMeta


@record
class Commit:
    """A snapshot as far as the life of a file goes. `kind`: APPEND, COMPACT, …; time in ms UTC."""

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
        """What has to go before the file goes, in words."""
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
