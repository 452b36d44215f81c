"""What a user declares about one table: the values that assets, checks and sensors are built from."""

from collections.abc import Mapping, Sequence
from dataclasses import field

import dagster as dg
import pyarrow as pa

from lsm_assets.model.asset_partitions import PartitionTemplates, templates_of
from lsm_assets.model.keys import TableKeys
from lsm_engine import ErrorKind, InvalidInputError, core_options, given_options, record

_READ_MODE = (
    core_options.MERGE_ENGINE,
    core_options.DELETION_VECTORS_ENABLED,
    core_options.DELETION_VECTORS_MERGE_ON_READ,
)
"""Options that decide which levels reads see."""


@record
class TableDeclaration:
    """One table as its owner wants it. `name` is `database.table`; the schema is created as given.

    `options` are table options as text (docs/options.md). `deps` are upstream assets of any kind.
    `column_lineage` names, per column of this table, the (upstream asset, column) pairs that it is
    computed from. `exact_row_count_below`: rows are counted exactly, by a merge-read, while the
    files hold fewer rows than this; above it the merged count is not reported at all.
    `fresh_within_minutes`: Dagster calls the table late where its last write is older.

    `partitions_def` partitions the asset, and so its writer's work; the table's own partitions are
    `partitioned_by`. `partition_columns` names what a column, best a partition column, holds of the asset's
    partition key, such as {"day": "{key}"} or {"month": "{key:%m}"}: see `PartitionTemplates`.
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
        """Every Dagster name of this table."""
        return TableKeys(name=self.name)

    def __post_init__(self) -> None:
        known = {*self.partitioned_by, *self.schema.names}
        unknown = sorted(set(self.partition_columns) - known) if self.schema.names else []
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
        """Whether reads leave level 0 out, so that a compaction shows rows: deletion vectors, or first-row."""
        options = given_options(
            {each.key: self.options[each.key] for each in _READ_MODE if each.key in self.options}
        )
        return bool(self.primary_key) and options.hides_level_0

    @property
    def templates(self) -> PartitionTemplates | None:
        """How the asset's partitions are stored in the table's; None for an asset without any."""
        return templates_of(self.partitions_def, self.partition_columns, self.partitioned_by)

    @property
    def group_name(self) -> str:
        """The asset group; by default each table is a group, so that the graph folds to tables."""
        return self.group or self.keys.identifier
