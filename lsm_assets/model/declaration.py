"""The declaration of one table, from which its assets, checks, jobs and sensors are built."""

from collections.abc import Mapping, Sequence
from dataclasses import field

import dagster as dg
import pyarrow as pa

from lsm_assets.model.asset_partitions import PartitionTemplates, partition_templates
from lsm_assets.model.keys import TableKeys
from lsm_engine import ErrorKind, InvalidInputError, core_options, given_options, record

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
        fresh_within_minutes: Dagster reports the table as late if its last write is older than this.

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

    @property
    def keys(self) -> TableKeys:
        """The asset keys and other Dagster names of this table."""
        return TableKeys(name=self.name)

    def __post_init__(self) -> None:
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
