"""Row ids: which a commit gives to new rows, and which ranges of ids files hold.

A file of new rows has no ids while it is staged. Each attempt at a commit gives it the next ones of the
base that it is tried on, in the manifest: a lost race costs other numbers, never another file.
`_SEQUENCE_NUMBER` is the id of the snapshot that the rows came or changed with (decisions/0045)."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.base.units import FIRST_SNAPSHOT_ID
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.options.modes import EntryKind, FileSource
from lsm_engine.planning.proposal import CommitStep
from lsm_engine.types.table_schema import ROW_ID

# -- Rows as new as their snapshot: `sequence.snapshot-ordering` -----------------------------------
#
# New files are numbered by the commit, all rows of a file alike, with the id of the snapshot
# that publishes them; what a compaction writes carries the numbers of its input. A lost race
# then costs nothing but another number in the manifest. docs/decisions/0028 describes what is
# on disk.


def id_after(base: Snapshot | None) -> int:
    """Return the id of the snapshot that follows `base`."""
    return FIRST_SNAPSHOT_ID if base is None else base.id + 1


def stamped(step: CommitStep, snapshot_id: int) -> CommitStep:
    """Return a step whose new files hold rows of snapshot `snapshot_id`.

    Files of one bucket come oldest first. As they then have one number, the newest gets the
    earliest creation time: all clients order files that tie by it (lsm/levels).
    """
    oldest: dict[tuple[bytes, int], int] = {}
    delta: list[ManifestEntry] = []
    for entry in reversed(step.delta):
        if is_numbered_by_commit(entry):
            bucket = (entry.partition, entry.bucket)
            created = max(entry.file.creation_millis or 0, oldest.get(bucket, -1) + 1)
            oldest[bucket] = created
            file = replace(
                entry.file,
                min_sequence_number=snapshot_id,
                max_sequence_number=snapshot_id,
                creation_millis=created,
            )
            entry = replace(entry, file=file)
        delta.append(entry)
    return replace(step, delta=tuple(reversed(delta)))


def is_numbered_by_commit(entry: ManifestEntry) -> bool:
    """Whether an entry adds a file of new rows."""
    return entry.kind is EntryKind.ADD and entry.file.file_source is FileSource.APPEND


# -- Row ids: which a commit gives to new rows, and which ranges of ids files hold -----------------


def with_row_ids(
    delta: Sequence[ManifestEntry], base: Snapshot | None
) -> tuple[tuple[ManifestEntry, ...], int]:
    """Return entries with ids given to new rows after `base`, and the next id that is free.

    Files of new rows, and files of new values of rows that have ids, come with the number of the
    snapshot; what a compaction writes keeps the numbers of its input.
    """
    next_id = 0 if base is None else base.next_row_id or 0
    numbered: list[ManifestEntry] = []
    for entry in delta:
        file = entry.file
        if entry.kind is EntryKind.ADD and file.file_source is FileSource.APPEND:
            is_new = file.first_row_id is None and not stores_row_ids(file)
            if is_new or not file.min_sequence_number:
                number = id_after(base)
                file = replace(file, min_sequence_number=number, max_sequence_number=number)
            if is_new:
                file = replace(file, first_row_id=next_id)
                next_id += file.row_count
            entry = replace(entry, file=file)
        numbered.append(entry)
    return tuple(numbered), next_id


def stores_row_ids(file: DataFileMeta) -> bool:
    """Whether the ids of a file's rows stand in the file, as rows were moved to it from others."""
    return file.write_columns is not None and ROW_ID in file.write_columns


def row_ids_of(file: DataFileMeta) -> range:
    """Return the ids of a file's rows, which follow each other.

    Raises CorruptFileError for a file without: every file of a table with data evolution has them.
    """
    if file.first_row_id is None:
        raise CorruptFileError(
            "a file of a table with 'data-evolution.enabled' has no row ids in its manifest entry; "
            "restore it from a client that wrote them",
            file=file.file_name,
        )
    return range(file.first_row_id, file.first_row_id + file.row_count)


def column_groups(files: Iterable[DataFileMeta]) -> list[tuple[DataFileMeta, ...]]:
    """Return files of one bucket by the rows that they hold columns of: newest first, by row id.

    Raises CorruptFileError where files share some of their rows and not all.
    """
    groups: list[list[DataFileMeta]] = []
    ordered = sorted(files, key=lambda file: (row_ids_of(file).start, -file.row_count))
    for file in ordered:
        ids = row_ids_of(file)
        if not groups or ids.start >= row_ids_of(groups[-1][0]).stop:
            groups.append([file])
        elif ids == row_ids_of(groups[-1][0]):
            groups[-1].append(file)
        else:
            raise CorruptFileError(
                "two files share some of their row ids and not all of them, so that their columns "
                "cannot be joined; run verify",
                file=file.file_name,
                other=groups[-1][0].file_name,
                row_ids=f"{ids.start}-{ids.stop - 1}",
            )
    return [tuple(sorted(group, key=_newest_first)) for group in groups]


def _newest_first(file: DataFileMeta) -> tuple[int, str]:
    return (-file.max_sequence_number, file.file_name)
