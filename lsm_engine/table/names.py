"""Names that users give: columns, partitions, and columns that an answer adds."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from numbers import Integral

import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, InvalidInputError, UnsupportedError
from lsm_engine.filter.partition import partition_mask, partition_predicate
from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.types.declared_lengths import stored_values
from lsm_engine.types.table_schema import TableSchema

# -- Names given by callers ------------------------------------------------------------------------


def names_of(value: object, argument: str) -> tuple[str, ...]:
    """Return names as a tuple; InvalidInputError naming the argument for what is none."""
    if isinstance(value, str):
        return (value,)
    names = (
        tuple(value) if isinstance(value, Iterable) and not isinstance(value, Mapping) else (value,)
    )
    for name in names:
        if not isinstance(name, str):
            raise InvalidInputError(
                f"{argument} takes a name, or a list of names", argument=argument, value=name
            )
    return names


def is_whole(value: object) -> bool:
    """Whether a value is a whole number, of NumPy too; a bool is none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def only_one(value: object, argument: str, other_argument: str) -> None:
    """Raise InvalidInputError where two arguments that both name rows are given."""
    if value is not None:
        raise InvalidInputError(f"{argument} and {other_argument} both name rows; give one of them")


# -- Columns that an answer adds to those of the table ---------------------------------------------
#
# No table of others may have them already.


def refuse_taken(names: Iterable[str], added: Collection[str], feature: str) -> None:
    """Raise UnsupportedError, naming them, where columns have the names that a `feature` adds."""
    duplicates = sorted(set(names).intersection(added))
    if duplicates:
        raise UnsupportedError(
            f"the table has columns of the names that {feature} adds; rename them",
            columns=duplicates,
        )


# -- Partitions as users name them, {"dt": "2024-01-01"}, against stored partition rows ------------


class PartitionTest:
    """Whether a stored partition is covered by one of some specs.

    A spec may leave partition columns out; it then covers all their values. Raises InvalidInputError
    for names that are no partition columns and values that do not fit.
    """

    def __init__(self, schema: TableSchema, specs: Sequence[Mapping[str, object]]) -> None:
        self._fields = schema.select_read(schema.partition_keys)
        if not all(isinstance(spec, Mapping) for spec in specs):
            raise InvalidInputError("partitions are given as [{column: value}]", given=specs)
        self._predicates = [partition_predicate(spec, self._fields) for spec in specs]

    def __call__(self, partition: bytes) -> bool:
        stored = pa.array([partition], pa.binary())
        masks = (partition_mask(predicate, stored, self._fields) for predicate in self._predicates)
        return any(bool(mask[0]) for mask in masks)


def partition_columns(
    schema: TableSchema, columns: Mapping[str, Sequence[object]]
) -> list[pa.Array]:
    """Return the columns of partitions, of their own types, given as the values of every partition column.

    Raises InvalidInputError for other names, and for values that do not fit.
    """
    fields = schema.select_read(schema.partition_keys)
    if set(columns) != set(schema.partition_keys):
        raise InvalidInputError(
            "a partition is named by all its columns: "
            + (", ".join(schema.partition_keys) or "none"),
            kind=ErrorKind.NO_SUCH_COLUMN,
            given=sorted(columns),
        )
    try:
        arrays = [pa.array(columns[field.name]).cast(arrow_type(field.type)) for field in fields]
    except pa.ArrowInvalid as error:
        shown = {name: values[0] for name, values in columns.items()} if len(fields) else {}
        raise InvalidInputError(f"no partition has these values: {error}", given=shown) from error
    return [
        stored_values(field.name, field.type, values)
        for field, values in zip(fields, arrays, strict=True)
    ]
