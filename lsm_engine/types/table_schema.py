"""The schema of a table: fields by id, keys, options, and the properties derived from them."""

from collections.abc import Iterable, Iterator
from dataclasses import field as attribute
from dataclasses import replace

import pyarrow as pa

from lsm_engine.base.arguments import checks_arguments
from lsm_engine.base.errors import CorruptFileError, ErrorKind, NotFoundError
from lsm_engine.base.names import no_column
from lsm_engine.base.record import record
from lsm_engine.options import core_options
from lsm_engine.options.modes import BucketMode
from lsm_engine.options.table_options import TableOptions
from lsm_engine.types.arrow_types import arrow_schema, compared_schema
from lsm_engine.types.types import DataField, Root, ScalarType, type_text

SEQUENCE_NUMBER = "_SEQUENCE_NUMBER"
ROW_ID = "_ROW_ID"
VALUE_KIND = "_VALUE_KIND"
KEY_PREFIX = "_KEY_"
# The ids of the columns that the format adds are fixed by Paimon.
KEY_ID_OFFSET = 1_073_741_823
SEQUENCE_NUMBER_ID = 2_147_483_646
VALUE_KIND_ID = 2_147_483_645
ROW_ID_ID = 2_147_483_642
SCHEMA_VERSION = 3

PADDED_KEYS = TableOptions(texts={core_options.CHAR_KEYS_PADDED.key: "true"})
"""Options of a schema of some columns alone, none of which is refused for its blanks."""
_TRACKING_FIELDS = tuple(
    DataField(id=number, name=name, type=ScalarType(root=Root.BIGINT, nullable=False))
    for name, number in ((ROW_ID, ROW_ID_ID), (SEQUENCE_NUMBER, SEQUENCE_NUMBER_ID))
)


@record
class TableSchema:
    """One version of the schema of a table. `primary_keys` include the partition columns, if they are keys."""

    id: int
    fields: tuple[DataField, ...]
    highest_field_id: int
    partition_keys: tuple[str, ...]
    primary_keys: tuple[str, ...]
    options: TableOptions
    comment: str | None = None
    time_millis: int = 0
    version: int = SCHEMA_VERSION
    read_from: tuple[int, int] | None = attribute(default=None, compare=False)
    """The id and the checksum of the file that it was read from; a copy with another id has none."""

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self.fields)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def keys(self) -> tuple[str, ...]:
        """Return the names of the columns, so that `dict(schema)` has the field of each."""
        return self.names

    def __repr__(self) -> str:
        """Return the most important members for a person."""
        columns = ", ".join(f"{field.name} {type_text(field.type)}" for field in self.fields)
        for role, names in (("key", self.primary_keys), ("partitioned by", self.partition_keys)):
            columns += f"; {role} {', '.join(names)}" if names else ""
        return f"<TableSchema {self.id}: {columns}>"

    @property
    def checksum(self) -> int | None:
        """The checksum of the schema's file; None where it was not read from one."""
        return self.read_from[1] if self.read_from and self.read_from[0] == self.id else None

    @property
    def has_primary_key(self) -> bool:
        """Whether this is a primary-key table (an LSM tree) and not an append table."""
        return bool(self.primary_keys)

    @property
    def trimmed_primary_keys(self) -> tuple[str, ...]:
        """The LSM key: primary key columns that are not partition columns, in declared order."""
        trimmed = tuple(name for name in self.primary_keys if name not in self.partition_keys)
        return trimmed or self.primary_keys

    @property
    def bucket_keys(self) -> tuple[str, ...]:
        """Columns whose hash chooses the bucket."""
        return self.options[core_options.BUCKET_KEY] or self.trimmed_primary_keys

    @property
    def bucket_count(self) -> int:
        """The `bucket` option: above 0 fixed, -1 dynamic or unaware, -2 postponed."""
        return self.options[core_options.BUCKET]

    @property
    def bucket_mode(self) -> BucketMode:
        """How rows find their bucket."""
        if self.bucket_count > 0:
            return BucketMode.FIXED
        # Paimon stores -2 for rows that wait for a bucket.
        if self.bucket_count == -2:
            return BucketMode.POSTPONE
        if not self.has_primary_key:
            return BucketMode.UNAWARE
        # With partitions outside the key, a key may move to another partition.
        own_keys = set(self.partition_keys) <= set(self.primary_keys)
        return BucketMode.DYNAMIC if own_keys else BucketMode.CROSS_PARTITION

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(field.name for field in self.fields)

    @property
    def sequence_fields(self) -> tuple[str, ...]:
        """The `sequence.field` columns."""
        return self.options[core_options.SEQUENCE_FIELD]

    @property
    def orders_by_snapshot(self) -> bool:
        """Whether rows are as new as the snapshot that brought them (planning/row_ids)."""
        return self.has_primary_key and self.options[core_options.SEQUENCE_SNAPSHOT_ORDERING]

    @property
    def tracks_rows(self) -> bool:
        """Whether rows have ids, `_ROW_ID`, and the snapshot that changed them, `_SEQUENCE_NUMBER`."""
        return not self.has_primary_key and self.options[core_options.ROW_TRACKING_ENABLED]

    @property
    def evolves_data(self) -> bool:
        """Whether columns of a row may lie in several files (`data-evolution.enabled`)."""
        return self.tracks_rows and self.options[core_options.DATA_EVOLUTION_ENABLED]

    @property
    def tracking_names(self) -> tuple[str, ...]:
        """The columns that a read may ask for besides those of the table."""
        return (ROW_ID, SEQUENCE_NUMBER) if self.tracks_rows else ()

    @checks_arguments
    def written_fields(self, names: tuple[str, ...] | None) -> tuple[DataField, ...]:
        """Return the columns of a file that was written with some columns (`_WRITE_COLS`; None: all), as far as they are read.

        Raises CorruptFileError for a name that the schema does not have.
        """
        # A file without `_WRITE_COLS` has every column.
        if names is None:
            return self.fields
        fields_by_name = {field.name: field for field in (*self.fields, *_TRACKING_FIELDS)}
        names = tuple(name for name in names if name not in self.options.unread_columns)
        missing = [name for name in names if name not in fields_by_name]
        if missing:
            raise CorruptFileError(
                "a manifest names columns of a file that its schema does not have; run verify",
                columns=missing,
                schema_id=self.id,
            )
        return tuple(fields_by_name[name] for name in names)

    @property
    def unpadded_keys(self) -> frozenset[str]:
        """CHAR columns of keys that may be stored without the blanks at their end, and are read as they are."""
        # A table with padded keys stores the blanks.
        if self.options[core_options.CHAR_KEYS_PADDED]:
            return frozenset()
        return char_keys(self)

    @property
    def read_fields(self) -> tuple[DataField, ...]:
        """The columns as they are read and compared; a CHAR that is not padded is text."""
        unpadded = self.unpadded_keys
        # Most tables have no such column and share one tuple.
        if not unpadded:
            return self.fields
        return tuple(
            replace(field, type=ScalarType(root=Root.STRING, nullable=field.type.nullable))
            if field.name in unpadded
            else field
            for field in self.fields
        )

    @checks_arguments
    def select_read(self, names: Iterable[str]) -> tuple[DataField, ...]:
        """Return columns by name as `read_fields` has them, `_ROW_ID` and its kin too, in the order asked for."""
        by_name = {field.name: field for field in self.read_fields}
        return tuple(by_name.get(field.name, field) for field in self.written_fields(tuple(names)))

    @property
    def compared(self) -> pa.Schema:
        """The rows of this table as filters see them: CHAR columns know their length."""
        return compared_schema(self.read_fields)

    @property
    def may_have_indexes(self) -> bool:
        """Whether snapshots name an index manifest: of deletion vectors, or of dynamic buckets."""
        is_dynamic = self.has_primary_key and self.bucket_count == -1
        return is_dynamic or self.options[core_options.DELETION_VECTORS_ENABLED]

    def __arrow_c_schema__(self) -> object:
        return self.arrow.__arrow_c_schema__()

    def __iter__(self) -> Iterator[DataField]:
        return iter(self.fields)

    def __getitem__(self, name: str) -> DataField:
        if not isinstance(name, str):
            raise TypeError(f"a schema is asked by name: write field(name), or fields[{name!r}]")
        return self.field(name)

    def field(self, name: str) -> DataField:
        """Return a column by name; raises NotFoundError naming the existing columns."""
        key: object = name  # of callers without type checks, too
        for field in self.fields:
            if isinstance(key, str) and field.name == key:
                return field
        raise NotFoundError(
            f"no column {name!r}; there are {', '.join(self.names)}{no_column(str(name), self.names)}",
            kind=ErrorKind.NO_SUCH_COLUMN,
            column=name,
        )

    @checks_arguments
    def select(self, names: Iterable[str]) -> tuple[DataField, ...]:
        """Return columns by name, in the order asked for."""
        return tuple(self.field(name) for name in names)

    @property
    def arrow(self) -> pa.Schema:
        """The rows of this table as users see them."""
        return arrow_schema(self.fields)

    @property
    def key_value_arrow(self) -> pa.Schema:
        """Rows as the engine merges them: every column, then sequence number and row kind.

        Key columns are not doubled in memory; a data file stores them again as `_KEY_` columns.
        """
        return pa.schema(
            [
                *arrow_schema(self.fields),
                pa.field(SEQUENCE_NUMBER, pa.int64(), nullable=False),
                pa.field(VALUE_KIND, pa.int8(), nullable=False),
            ]
        )


def char_keys(schema: TableSchema) -> frozenset[str]:
    """Return the CHAR columns that decide where a row lies, or which row it is."""
    keys = {*schema.primary_keys, *schema.partition_keys, *schema.bucket_keys}
    return frozenset(
        field.name
        for field in schema.fields
        if field.name in keys
        and isinstance(field.type, ScalarType)
        and field.type.root is Root.CHAR
    )


class SameSchema:
    """A schema as a key of a dictionary: equal to itself alone, so that its columns are never compared or hashed."""

    __slots__ = ("schema",)

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameSchema) and other.schema is self.schema


def has_unread_columns(schema: TableSchema, names: Iterable[str] | None) -> bool:
    """Whether some of the columns of a file (None: all) have types that this version does not read."""
    unread = schema.options.unread_columns
    return bool(unread) if names is None else any(name in unread for name in names)
