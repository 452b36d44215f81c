"""The declaration of one table, from which its assets, checks, jobs and sensors are built."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime

import dagster as dg
import pyarrow as pa

from lsm_assets.keys import ICEBERG, TableKeys, viewed_table
from lsm_assets.versions import ChangedRanges, CommitFacts, Range, TableVersion
from lsm_engine import ErrorKind, InvalidInputError, core_options, given_options, record

# -- Asset partitions ------------------------------------------------------------------------------
#
# Map partitions of an asset to partitions of its table, and find the asset partitions that a
# commit affects.

KEY = "key"
"""The field of a template that stands for the partition key, if partitions have one dimension."""


@record
class PartitionTemplates:
    """Templates that derive values of a table's columns from a partition key of its asset.

    Attributes:
        definition: Partitions of the asset.
        columns: Python format string by column name. "{key}" is the partition key. "{key:%m}" formats the time at
            which a time partition begins. "{region}" is the dimension `region` of a multi-partition key. A column
            without a template may hold any value.
        is_declared: False if the templates are a guess of `partition_templates`.
    """

    definition: dg.PartitionsDefinition
    columns: Mapping[str, str]
    is_declared: bool = True

    def values(self, key: str) -> tuple[str, ...]:
        """Return the values of the columns as strings, in the order of `columns`.

        Raises InvalidInputError if a template uses a field or a format that the partitions do not have.
        """
        names = _template_fields(self.definition, key)
        try:
            return tuple(template.format(**names) for template in self.columns.values())
        except (KeyError, IndexError, ValueError, AttributeError) as error:
            raise InvalidInputError(
                "the template of a partition column does not fit the asset's partitions; it may use "
                + ", ".join(f"{{{name}}}" for name in names),
                kind=ErrorKind.INVALID_NAME,
                templates=dict(self.columns),
                partition=key,
            ) from error

    def sharing_values(self, keys: Collection[str], all_keys: Iterable[str]) -> list[str]:
        """Return the partitions of `all_keys` that are not in `keys` and share column values with one of them."""
        # Values that contain every dimension are unique: no partition needs to be formatted.
        if {f"{{{name}}}" for name in self._dimensions} <= {*self.columns.values()}:
            return []
        own = {self.values(key) for key in keys}
        return [key for key in all_keys if key not in keys and self.values(key) in own]

    @property
    def _dimensions(self) -> dict[str, dg.PartitionsDefinition]:
        if isinstance(self.definition, dg.MultiPartitionsDefinition):
            return {
                dimension.name: dimension.partitions_def
                for dimension in self.definition.partitions_defs
            }
        return {KEY: self.definition}

    def holds_times(self, column: str) -> bool:
        """Whether the template of a column is the complete key of a time partition."""
        definitions = {f"{{{name}}}": definition for name, definition in self._dimensions.items()}
        return isinstance(definitions.get(self.columns[column]), dg.TimeWindowPartitionsDefinition)

    def window(self, column: str, key: str) -> tuple[datetime, datetime]:
        """Return the start and the end of the time partition whose key a column holds."""
        times = _template_fields(self.definition, key)[self.columns[column][1:-1]]
        assert isinstance(times, _TimeKey)
        window = times.definition.time_window_for_partition_key(str(times))
        return window.start, window.end


def partition_templates(
    definition: dg.PartitionsDefinition | None,
    declared: Mapping[str, str],
    partitioned_by: Sequence[str],
) -> PartitionTemplates | None:
    """Return the templates of an asset, or None if the asset has no partitions.

    Args:
        definition: Partitions of the asset.
        declared: Template by column. If it is empty, the templates are guessed: a dimension belongs to the partition
            column of the same name, and the only dimension belongs to the only partition column.
        partitioned_by: Partition columns of the table.
    """
    if definition is None:
        return None
    if declared:
        # Guesses are made only where nothing is declared.
        return PartitionTemplates(definition=definition, columns=declared)
    if isinstance(definition, dg.MultiPartitionsDefinition):
        dimensions = {dimension.name for dimension in definition.partitions_defs}
        guessed = {name: f"{{{name}}}" for name in partitioned_by if name in dimensions}
    else:
        guessed = {partitioned_by[0]: f"{{{KEY}}}"} if len(partitioned_by) == 1 else {}
    return PartitionTemplates(definition=definition, columns=guessed, is_declared=False)


class _TimeKey(str):
    """The key of a time partition. `format` without a specification returns the key, with one the start time."""

    definition: dg.TimeWindowPartitionsDefinition

    def __format__(self, spec: str) -> str:
        # Without a format the key is used as it is.
        if not spec:
            return str(self)
        return self.definition.start_time_for_partition_key(str(self)).strftime(spec)


def _template_fields(definition: dg.PartitionsDefinition, key: str) -> dict[str, str]:
    if isinstance(definition, dg.MultiPartitionsDefinition):
        keys = definition.get_partition_key_from_str(key).keys_by_dimension
        return {
            dimension.name: _formattable_key(dimension.partitions_def, keys[dimension.name])
            for dimension in definition.partitions_defs
        }
    return {KEY: _formattable_key(definition, key)}


def _formattable_key(definition: dg.PartitionsDefinition, key: str) -> str:
    # Only time partitions can be formatted as dates.
    if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return key
    time_key = _TimeKey(key)
    time_key.definition = definition
    return time_key


@record
class ColumnRanges:
    """The range (least, greatest) of one column in the rows of each asset partition. Ranges do not overlap.

    `is_exact` is true for a partition column: every row of a partition lies in its range.
    """

    column: str
    by_partition: Mapping[str, Range]
    is_exact: bool = False


class PartitionLayout:
    """The partition directories of a table that hold the rows of each partition of its asset.

    Attributes:
        paths: Partial directory path by asset partition. It has only the path components that the partition
            determines, such as "month=1", joined by slashes.
        positions: Positions of those components in a complete path. Empty: a partition may be in any directory.
        ranges: Ranges of a column that separate partitions with the same directories.
        is_certain: False if a directory that matches no partition may belong to any of them.
    """

    def __init__(
        self,
        paths: Mapping[str, str],
        positions: Sequence[int] = (),
        *,
        is_certain: bool = True,
        ranges: ColumnRanges | None = None,
    ) -> None:
        self.paths, self.is_certain, self.ranges = paths, is_certain, ranges
        self._positions = positions
        self._keys_by_path: dict[str, list[str]] = {}
        for key, path in paths.items():
            self._keys_by_path.setdefault(path, []).append(key)
        self._indexes = {
            path: _RangeIndex(keys, ranges.by_partition)
            for path, keys in self._keys_by_path.items()
            if ranges
        }

    @property
    def column(self) -> str | None:
        """The column whose ranges separate partitions with the same directories."""
        return self.ranges.column if self.ranges is not None else None

    def sole_partitions_in(self, changes: ChangedRanges | None) -> set[str]:
        """Return the asset partitions that alone can own a changed range. `changes` None: anything may have changed."""
        if changes is None:
            # Any partition may have changed. An exact column separates all of them, a directory only its own.
            is_exact = self.ranges is not None and self.ranges.is_exact
            return {
                key
                for keys in self._keys_by_path.values()
                if is_exact or len(keys) == 1
                for key in keys
            }
        return {
            key for keys in self._partitions_by_change(changes) if len(keys) == 1 for key in keys
        }

    def partitions_in(self, changes: ChangedRanges | None) -> set[str]:
        """Return the asset partitions with rows in the changed ranges. `changes` None: anything may have changed."""
        if changes is None:
            return set(self.paths)
        return {key for keys in self._partitions_by_change(changes) for key in keys}

    def changes_outside(self, keys: Collection[str], changes: ChangedRanges) -> ChangedRanges:
        """Return the part of `changes` in which none of the asset partitions `keys` has rows."""
        remaining: dict[str, frozenset[Range] | None] = {}
        for path, ranges in changes.items():
            parts: list[Range | None] = [None] if ranges is None else list(ranges)
            partial_path = to_partial_path(path, self._positions)
            outside = [
                part
                for part in parts
                if not any(key in keys for key in self._partitions_at(partial_path, part))
            ]
            if outside:
                remaining[path] = None if ranges is None else frozenset(filter(None, outside))
        return remaining

    def _partitions_by_change(self, changes: ChangedRanges) -> Iterator[Collection[str]]:
        """Yield the asset partitions with rows in each changed range, or directory if its ranges are unknown."""
        parts = {
            (to_partial_path(path, self._positions), part)
            for path, ranges in changes.items()
            for part in ([None] if ranges is None else ranges)
        }
        for partial_path, part in parts:
            keys = self._partitions_at(partial_path, part)
            yield keys if keys or self.is_certain else self.paths

    def _partitions_at(self, partial_path: str, part: Range | None) -> Sequence[str]:
        # Without ranges every partition of the directory may be affected.
        if part is None or self.ranges is None or partial_path not in self._indexes:
            return self._keys_by_path.get(partial_path, ())
        return self._indexes[partial_path].overlapping(part)


class _RangeIndex:
    """Asset partitions of the same directories, sorted by their ranges."""

    def __init__(self, keys: Iterable[str], ranges: Mapping[str, Range]) -> None:
        # Without a time zone the hour that a clock repeats has an empty range: its rows belong to the first of the two.
        self._keys = sorted(
            (key for key in keys if ranges[key][0] <= ranges[key][1]), key=ranges.__getitem__
        )
        self._first = [ranges[key][0] for key in self._keys]
        self._last = [ranges[key][1] for key in self._keys]

    def overlapping(self, part: Range) -> Sequence[str]:
        """Return the partitions whose range overlaps `part`."""
        low, high = part
        return self._keys[bisect_left(self._last, low) : bisect_right(self._first, high)]


def to_partial_path(path: str, positions: Sequence[int]) -> str:
    """Return the components of a partition path at some positions, joined by slashes."""
    parts = path.split("/")
    # The lineage may have paths of an earlier table of this name, with fewer partition columns.
    return "/".join(parts[position] for position in positions if position < len(parts))


@record
class WriterRun:
    """The Dagster run of the table's own asset that made a commit, with the partitions that it materialised.

    `has_recorded` is true if the run has succeeded: Dagster then has the versions of these partitions.
    """

    partitions: frozenset[str]
    has_recorded: bool


FindWriterRun = Callable[[CommitFacts], WriterRun | None]
"""Returns the run of the table's asset that made a commit, None for other commits."""


def affected_partitions(
    commit: CommitFacts, writer: WriterRun | None, layout: PartitionLayout
) -> set[str]:
    """Return the asset partitions whose rows a commit may have changed without an event in Dagster.

    Args:
        commit: The commit.
        writer: The run of the table's asset that made it; None for other commits.
        layout: The directories of the asset's partitions.
    """
    changes = commit.changed_ranges
    if writer is None:
        return layout.partitions_in(changes)
    # A successful run has recorded its own partitions. A failed run has committed them without an event.
    own = set() if writer.has_recorded else set(writer.partitions)
    if changes is None:
        return own
    # The run may also have changed rows of other partitions. Ranges that it shares with them count as its own.
    neighbours = layout.partitions_in(layout.changes_outside(writer.partitions, changes))
    return (own & layout.partitions_in(changes)) | neighbours


def changed_versions(
    recorded: Mapping[str, TableVersion],
    commits: Iterable[CommitFacts],
    find_writer: FindWriterRun,
    layout: PartitionLayout,
) -> dict[str, TableVersion]:
    """Return the asset partitions that commits have changed since their recorded versions, with the last such commit.

    Args:
        recorded: Recorded version by partition.
        commits: Commits, oldest first.
        find_writer: Returns the asset's run that made a commit.
        layout: The directories of the asset's partitions.
    """
    moved: dict[str, TableVersion] = {}
    for commit in commits:
        # A commit without partitions changed no rows.
        if commit.partitions == frozenset():
            continue
        affected = affected_partitions(commit, find_writer(commit), layout)
        alone = (
            layout.sole_partitions_in(commit.changed_ranges)
            if affected - recorded.keys()
            else set()
        )
        for name in affected:
            version = recorded.get(name)
            # A partition without a record may be empty. It counts only if the changed rows cannot belong to another.
            if version is None and name not in alone:
                continue
            if version is None or version.snapshot_id < commit.version.snapshot_id:
                moved[name] = commit.version
    return moved


# -- The declaration of one table, from which its assets, checks, jobs and sensors are built -------

_READ_MODE = (
    core_options.MERGE_ENGINE,
    core_options.DELETION_VECTORS_ENABLED,
    core_options.DELETION_VECTORS_MERGE_ON_READ,
)
"""Options that decide whether reads skip level 0."""


@record
class TableDeclaration:
    """A table and its asset, as the user declares them.

    Attributes:
        name: `database.table`.
        schema: Columns of the table.
        primary_key: Primary key columns; empty for an append table.
        partitioned_by: Partition columns of the table.
        options: Table options (docs/options.md).
        comment: Comment of the table, and description of its asset.
        deps: Upstream assets of any kind.
        column_lineage: By column of this table, the (upstream asset, column) pairs that it is computed from.
        group: Asset group; by default each table is a group of its own.
        owners: Owners of the assets.
        exact_row_count_below: Below this number of rows in all files the rows of a snapshot are counted by a
            merge-read. From this number on the row count is not reported.
        partitions_def: Partitions of the asset. Each run of the writer is for some of them.
        partition_columns: Template by column, such as {"day": "{key}"} or {"month": "{key:%m}"}, that derives the
            value of the column from a partition key of the asset; see `PartitionTemplates`.
        fresh_within_minutes: Dagster reports the table as late if its last write is older than this; a partition by
            time, if it was not written this long after its end.
        views: Names of views of the table, each a virtual asset: `ro`, `branch_<name>`, or `iceberg`.

    Raises InvalidInputError if `partition_columns` has a column that the table does not have.
    """

    name: str
    schema: pa.Schema
    primary_key: tuple[str, ...]
    partitioned_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    deps: tuple[dg.AssetKey, ...] = ()
    column_lineage: Mapping[str, Sequence[tuple[dg.AssetKey, str]]] = field(default_factory=dict)
    group: str | None = None
    owners: tuple[str, ...] = ()
    exact_row_count_below: int = 5_000_000
    partitions_def: dg.PartitionsDefinition | None = None
    partition_columns: Mapping[str, str] = field(default_factory=dict)
    fresh_within_minutes: float | None = None
    views: tuple[str, ...] = ()

    @property
    def keys(self) -> TableKeys:
        """The asset keys and other Dagster names of this table."""
        return TableKeys(name=self.name)

    def __post_init__(self) -> None:
        if strange := [
            name
            for name in self.views
            if name != ICEBERG and viewed_table(self.keys.view(name)) is None
        ]:
            raise InvalidInputError(
                "views are ro, branch_<name> of a branch, and iceberg",
                kind=ErrorKind.INVALID_NAME,
                table=self.name,
                views=strange,
            )
        columns = {*self.partitioned_by, *self.schema.names}
        # A declaration made from metadata of an asset has no columns, and cannot be checked.
        unknown = sorted(set(self.partition_columns) - columns) if self.schema.names else []
        if unknown:
            raise InvalidInputError(
                "partition_columns names columns that the table does not have; there are "
                + ", ".join(self.schema.names),
                kind=ErrorKind.NO_SUCH_COLUMN,
                table=self.name,
                columns=unknown,
            )

    @property
    def hides_level_0(self) -> bool:
        """Whether reads skip level 0, so that rows become visible by compaction: deletion vectors, first-row."""
        options = given_options(
            {
                option.key: self.options[option.key]
                for option in _READ_MODE
                if option.key in self.options
            }
        )
        return bool(self.primary_key) and options.hides_level_0

    @property
    def templates(self) -> PartitionTemplates | None:
        """Templates of the table's columns by partition key; None for an asset without partitions."""
        return partition_templates(self.partitions_def, self.partition_columns, self.partitioned_by)

    @property
    def group_name(self) -> str:
        """The asset group. By default each table is a group, so that the asset graph collapses to tables."""
        return self.group or self.keys.identifier
