"""What each incoming row does (+I, -U, +U, -D): where its kind stands, and which kinds a table takes."""

import functools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base import core_options
from lsm_engine.base.errors import InvalidInputError
from lsm_engine.base.modes import RowKind
from lsm_engine.base.units import counted
from lsm_engine.kernels.arrow_views import Bools
from lsm_engine.merge.retracts import RetractRule, retract_rule
from lsm_engine.schema.table_schema import TableSchema

ROW_KIND_COLUMN = "_row_kind"
"""Optional column of incoming rows: +I, -U, +U or -D as text, or the format's number 0 to 3."""

_APPEND_ONLY = RetractRule(
    refused=frozenset(RowKind) - {RowKind.INSERT},
    remedy="a table without a primary key takes new rows (+I) only: nothing in it is ever replaced",
)


@functools.cache
def kind_symbols() -> pa.Array:
    """Return +I, -U, +U and -D, each at its number; made late, as Arrow loads pandas for a list's sake."""
    return pa.array([kind.symbol for kind in RowKind], pa.string())


def takes_kinds(table: TableSchema) -> bool:
    """Whether rows of a table may have their kinds in `_row_kind`: no column of its own holds them."""
    own = table.options[core_options.ROWKIND_FIELD]
    return own is None and ROW_KIND_COLUMN not in table.names


class RowKinds:
    """Finds the kinds of rows of one incoming schema. `deletes`: every row names a key to delete.

    Raises InvalidInputError, when built, for kinds in two places, and for deletes that the table's
    merge engine does not take.
    """

    def __init__(self, incoming: pa.Schema, table: TableSchema, *, deletes: bool) -> None:
        self.stored_in: str | None = table.options[core_options.ROWKIND_FIELD]
        self._deletes = deletes
        self._rule = retract_rule(table) if table.has_primary_key else _APPEND_ONLY
        given = ROW_KIND_COLUMN in incoming.names and ROW_KIND_COLUMN not in table.names
        self.is_given = given and not deletes
        if self.is_given and self.stored_in is not None:
            raise InvalidInputError(
                f"the table takes row kinds from column {self.stored_in!r}; leave out "
                f"{ROW_KIND_COLUMN!r}",
                column=ROW_KIND_COLUMN,
            )
        if deletes and RowKind.DELETE in self._rule.refused:
            raise InvalidInputError(self._rule.remedy)
        lacks = set(self._rule.delete_needs).isdisjoint(incoming.names)
        if deletes and self._rule.delete_needs and lacks:
            raise InvalidInputError(
                "a delete of this table takes back what is in its row, and these rows hold a key "
                "only: nothing would change; add columns",
                columns=self._rule.delete_needs,
            )

    @property
    def has_kinds(self) -> bool:
        """Whether rows carry their own row kinds."""
        return self.is_given or (self.stored_in is not None and not self._deletes)

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Return each row's kind as int8; InvalidInputError for kinds that the table refuses."""
        if self._deletes:
            return pa.array(np.full(batch.num_rows, RowKind.DELETE, np.int8))
        column = ROW_KIND_COLUMN if self.is_given else self.stored_in
        if column is None:
            return pa.array(np.zeros(batch.num_rows, np.int8))
        if column not in batch.schema.names:
            raise InvalidInputError(f"rows lack column {column!r}, which holds each row's kind")
        kinds = _codes(batch.column(batch.schema.get_field_index(column)), column)
        refused = self._among(kinds, self._rule.refused)
        if refused.any():
            raise InvalidInputError(self._rule.remedy, column=column, rows=int(refused.sum()))
        return kinds

    def column(self, kinds: pa.Array) -> pa.Array:
        """Return kinds as the text that the table's own column of kinds holds."""
        return kind_symbols().take(kinds)

    def dropped(self, kinds: pa.Array) -> Bools | None:
        """Return the rows that the table drops, or None."""
        found = self._among(kinds, self._rule.dropped)
        return found if found.any() else None

    def _among(self, kinds: pa.Array, chosen: frozenset[RowKind]) -> Bools:
        if not chosen:
            return np.zeros(len(kinds), np.bool_)
        return np.isin(kinds.to_numpy(), [kind.value for kind in chosen])


def _codes(given: pa.Array, name: str) -> pa.Array:
    if pa.types.is_dictionary(given.type):
        given = given.dictionary_decode()
    if pa.types.is_integer(given.type):
        codes = given.cast(pa.int64())
    else:
        codes = pc.index_in(given.cast(pa.string()), value_set=kind_symbols())
    inside = pc.and_(pc.greater_equal(codes, 0), pc.less_equal(codes, 3))
    wrong = len(given) - (pc.sum(pc.fill_null(inside, False)).as_py() or 0)  # noqa: FBT003
    if wrong:
        raise InvalidInputError(
            f"{counted(wrong, 'row')} without a valid {name}; write +I, -U, +U or -D",
            column=name,
            rows=wrong,
        )
    return codes.cast(pa.int8())
