"""Row ids: which a commit gives to new rows, and which ranges of ids files hold.

A file of new rows has no ids while it is staged. Each attempt at a commit gives it the next ones of the
base that it is tried on, in the manifest: a lost race costs other numbers, never another file.
`_SEQUENCE_NUMBER` is the id of the snapshot that the rows came or changed with (decisions/0045).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.base.modes import EntryKind, FileSource
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.snapshot_order import id_after
from lsm_engine.schema.table_schema import ROW_ID


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
