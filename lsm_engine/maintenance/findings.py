"""Findings of a verification: problems, and the files and retained references that they affect."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, TypeVar

from lsm_engine.base.errors import CorruptFileError, LsmError, NotFoundError
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.format.binary_row import decode_row
from lsm_engine.format.json_object import READ_MAX, object_text, parse_object
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.planning.names import MAIN_BRANCH
from lsm_engine.storage.file_io import FileIO
from lsm_engine.storage.paths import TablePaths
from lsm_engine.types.table_schema import TableSchema

# -- Verified files --------------------------------------------------------------------------------
#
# The record of data files that a deep verification found sound, so that the next one skips
# them.
#
# Only verification uses it: without the record, files are read again.

_FILES = "files"
FILE_COUNT_MAX = 200_000
"""The maximum of files in a document that is still read."""


class VerifiedFileStore:
    """The record of one table, all branches together."""

    def __init__(self, file_io: FileIO, paths: TablePaths) -> None:
        self._file_io = file_io
        self._path = paths.verified_file

    def load(self) -> dict[str, str]:
        """Return the fingerprint of each file by its path; raises CorruptFileError."""
        try:
            data = self._file_io.read(self._path, length=READ_MAX)
        except NotFoundError:
            return {}
        fingerprints = parse_object(data, file_name=self._path).text_map(_FILES)
        if fingerprints is None:
            raise CorruptFileError(
                "this is no record of verified files; delete it, or repair records", file=self._path
            )
        return fingerprints

    def replace(self, fingerprints: Mapping[str, str]) -> None:
        """Write the record anew; of very many files the last `FILE_COUNT_MAX`."""
        newest = dict(list(fingerprints.items())[-FILE_COUNT_MAX:])
        self._file_io.replace(self._path, object_text({_FILES: newest}))


# -- The contents of a data file by its manifest entry ---------------------------------------------
#
# The rows at stake if the file is missing.

Values = Mapping[str, Any]
_SHOWN_CHARACTERS = 40


@record
class FileStake:
    """Rows are stored versions, retracts among them (`delete_count`; None: not recorded).

    `partition`: its columns and values. `min_key`, `max_key`: the first and the last key by column,
    partition columns aside. Each is empty for a table without such columns, None if it cannot be decoded.
    """

    path: str
    row_count: int
    delete_count: int | None
    byte_count: int
    level: int
    partition: Values | None
    bucket: int
    min_key: Values | None
    max_key: Values | None

    def __str__(self) -> str:
        parts = [f"{counted(self.row_count, 'row')}"]
        if self.partition != {}:
            parts.append(f"partition {_shown(self.partition)}")
        parts.append(f"bucket {self.bucket}")
        if self.min_key != {}:
            parts.append(f"keys {_shown(self.min_key)} to {_shown(self.max_key)}")
        return ", ".join(parts)


def stake_of(entry: ManifestEntry, schema: TableSchema, path: str) -> FileStake:
    """Return what a data file holds, from its entry alone."""
    file = entry.file
    keys = schema.trimmed_primary_keys if schema.has_primary_key else ()
    return FileStake(
        path=path,
        row_count=file.row_count,
        delete_count=file.delete_row_count,
        byte_count=file.file_size,
        level=file.level,
        partition=_values(entry.partition, schema, schema.partition_keys),
        bucket=entry.bucket,
        min_key=_values(file.min_key, schema, keys),
        max_key=_values(file.max_key, schema, keys),
    )


def _values(stored: bytes, schema: TableSchema, names: Sequence[str]) -> Values | None:
    if not names:
        return {}
    try:
        values = decode_row(stored, [field.type for field in schema.select(tuple(names))])
    except LsmError:
        return None
    return dict(zip(names, values, strict=True))


def _shown(values: Values | None) -> str:
    if values is None:
        return "that cannot be read"
    return ", ".join(f"{name}={str(value)[:_SHOWN_CHARACTERS]!r}" for name, value in values.items())


# -- Findings of a verification --------------------------------------------------------------------

T = TypeVar("T")
K = TypeVar("K", int, str)


@record
class Finding:
    """One thing that is wrong. `path`: the file it is about; `stake`: what a data file holds."""

    text: str
    path: str | None = None
    stake: FileStake | None = None

    def __str__(self) -> str:
        return self.text if self.stake is None else f"{self.text} ({self.stake})"


def finding_of(error: LsmError) -> Finding:
    """Return an error over stored bytes as a finding about the file that it names."""
    values = (error.facts.get("file"), error.facts.get("path"))
    names = [value for value in values if isinstance(value, str)]
    return Finding(text=str(error), path=names[0] if names else None)


@record
class Reference:
    """A retained reference: `kind` is "snapshot", "tag" or "changelog"; `name` its id or name."""

    kind: str
    name: int | str
    branch: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


@record
class DamagedFile:
    """A file that something is wrong with, and all that cannot be read, or not be trusted, without it.

    `stake`: what a data file held, as its manifest entry knows it; None for other files. `snapshots`
    and `changelogs` are ids, of any of the `branches`. `sources`: what could give back what it held;
    `is_rebuildable`: byte for byte, so that every retained reference has it again, and not only older rows of its keys.
    """

    path: str
    problems: tuple[str, ...]
    stake: FileStake | None = None
    snapshots: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    changelogs: tuple[int, ...] = ()
    branches: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    is_rebuildable: bool = False

    def __str__(self) -> str:
        references = [
            f"{kind} {', '.join(str(name) for name in names)}"
            for kind, names in (
                ("snapshots", _ranges(self.snapshots)),
                ("tags", self.tags),
                ("changelogs", _ranges(self.changelogs)),
                ("branches", tuple(name for name in self.branches if name != MAIN_BRANCH)),
            )
            if names
        ]
        held_rows = f" held {self.stake}" if self.stake is not None else ""
        parts = [f"{self.path}{held_rows}", *references, *self.sources]
        return "; ".join(parts)


def _ranges(numbers: Iterable[int]) -> tuple[str, ...]:
    """Return ids as text, each run of them as one: 1 to 5, 7."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] + 1 == number:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return tuple(" to ".join(str(end) for end in run) for run in runs)


def readable(
    names: Iterable[K],
    find: Callable[[K], T | None],
    passes_over: type[LsmError] = LsmError,
) -> Iterator[tuple[K, T]]:
    """Yield what is there and can be read, by its name or id; what cannot is a finding of its own.

    A repair passes over damage alone: storage that does not answer is raised.
    """
    for name in names:
        with suppress(passes_over):
            if (value := find(name)) is not None:
                yield name, value


class Findings:
    """All problems so far, in the order in which they were found, and the files they are about."""

    def __init__(self, branch: str) -> None:
        self._branch = branch or MAIN_BRANCH
        self.texts: list[str] = []
        self._files: dict[str, list[tuple[Reference | None, Finding]]] = {}

    def add(self, finding: Finding, *, subject: str, reference: Reference | None = None) -> None:
        """Take a problem of something, such as "schema 3", or of a retained reference."""
        self.texts.append(f"{subject}: {finding}")
        if finding.path is not None:
            self._files.setdefault(finding.path, []).append((reference, finding))

    def note(self, reference: Reference, findings: Iterable[Finding]) -> None:
        """Take what is wrong with a retained reference."""
        for finding in findings:
            self.add(finding, subject=str(reference), reference=reference)

    def files(self) -> list[DamagedFile]:
        """Return the files that something is wrong with."""
        return [self._file(path, findings) for path, findings in self._files.items()]

    def _file(self, path: str, findings: Sequence[tuple[Reference | None, Finding]]) -> DamagedFile:
        def names(kind: str) -> tuple[int | str, ...]:
            return tuple(
                dict.fromkeys(
                    reference.name
                    for reference, _ in findings
                    if reference and reference.kind == kind
                )
            )

        stakes = [item.stake for _, item in findings if item.stake is not None]
        return DamagedFile(
            path=path,
            problems=tuple(dict.fromkeys(item.text for _, item in findings)),
            stake=stakes[0] if stakes else None,
            snapshots=tuple(item for item in names("snapshot") if isinstance(item, int)),
            tags=tuple(str(item) for item in names("tag")),
            changelogs=tuple(item for item in names("changelog") if isinstance(item, int)),
            branches=(self._branch,),
        )


def merged(files: Iterable[DamagedFile]) -> tuple[DamagedFile, ...]:
    """Return one entry per file, of those that were found in several branches."""
    by_path: dict[str, DamagedFile] = {}
    for file in files:
        earlier = by_path.get(file.path)
        by_path[file.path] = file if earlier is None else _both(earlier, file)
    return tuple(by_path.values())


def _both(first: DamagedFile, second: DamagedFile) -> DamagedFile:
    """Return what two branches know of one file."""
    names = ("problems", "snapshots", "tags", "changelogs", "branches", "sources")
    values: dict[str, Any] = {
        name: tuple(dict.fromkeys((*getattr(first, name), *getattr(second, name))))
        for name in names
    }
    return replace(
        first,
        **values,
        stake=first.stake or second.stake,
        is_rebuildable=first.is_rebuildable or second.is_rebuildable,
    )


# -- Verification reports --------------------------------------------------------------------------


@record
class VerifyReport:
    """The result of a verification: every broken reference. Without problems all retained references can be read.

    `problems` is text, one entry for each retained reference that has one; `damaged_files` has each file once, with
    the retained references concerned and what could give it back; `own_damaged_files` those of the table or branch
    that was asked, with its own retained references alone: ids of branches name other snapshots. `unchecked_count`:
    data files that others wrote, or named, without a checksum. `read_count`, `skipped_count`: files
    whose pages were read, or were passed over because an earlier verification had read them.
    `gone_count`: retained references that were taken away meanwhile, or that an expiry which died had begun to take.
    `not_honoured`: options of the table that this version does not support; no problem while it is
    read. `warnings`: what may go wrong while others write. `hidden`: the first and the last of the table's
    own snapshots that its retention keeps and EARLIEST passes.
    """

    problems: tuple[str, ...] = ()
    snapshot_count: int = 0
    tag_count: int = 0
    file_count: int = 0
    index_file_count: int = 0
    gone_count: int = 0
    not_honoured: tuple[str, ...] = ()
    unchecked_count: int = 0
    read_count: int = 0
    skipped_count: int = 0
    damaged_files: tuple[DamagedFile, ...] = ()
    own_damaged_files: tuple[DamagedFile, ...] = ()
    warnings: tuple[str, ...] = ()
    hidden: tuple[int, int] | None = None

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def with_sources(self, files: Sequence[DamagedFile]) -> "VerifyReport":
        """Return the same report with what could give the files back, as `files` have it."""
        by_path = {file.path: file for file in files}
        own = tuple(
            replace(
                file,
                sources=by_path[file.path].sources,
                is_rebuildable=by_path[file.path].is_rebuildable,
            )
            for file in self.own_damaged_files
        )
        return replace(self, damaged_files=tuple(files), own_damaged_files=own)

    def __str__(self) -> str:
        looked = (
            f"{counted(self.snapshot_count, 'snapshot')}, {counted(self.tag_count, 'tag')}, "
            f"{counted(self.file_count, 'data file')}"
        )
        if self.index_file_count:
            looked += f", {counted(self.index_file_count, 'index file')}"
        if self.unchecked_count:
            looked += f", {self.unchecked_count} of the files without a checksum"
        if self.file_count and not self.read_count + self.skipped_count:
            looked += ", whose contents were not read"
        if self.skipped_count:
            looked += f", {self.skipped_count} of the files verified before"
        if self.gone_count:
            looked += f"; {self.gone_count} of them expired meanwhile, or are expiring"
        if self.is_clean:
            return "\n".join([f"clean: {looked}", *self.not_honoured, *self.warnings])
        headline = f"{counted(len(self.problems), 'problem')} in {looked}"
        files = [f"damaged: {file}" for file in self.damaged_files]
        return "\n".join([headline, *self.problems, *files, *self.not_honoured, *self.warnings])


_COUNTS = [field.name for field in fields(VerifyReport) if field.name.endswith("_count")]


def of_branches(reports: Sequence[tuple[str, VerifyReport]]) -> VerifyReport:
    """Return the report of a table, made of those of its branches, of which main is the first."""
    first, branch_reports = reports[0][1], [report for _, report in reports]
    return replace(
        first,
        **{name: sum(getattr(report, name) for report in branch_reports) for name in _COUNTS},
        problems=tuple(
            f"branch {name!r}: {problem}" if name else problem
            for name, report in reports
            for problem in report.problems
        ),
        warnings=tuple(warning for report in branch_reports for warning in report.warnings),
        damaged_files=merged(file for report in branch_reports for file in report.damaged_files),
        own_damaged_files=first.damaged_files,
    )
