"""The merge result of one key's versions, and the contribution of each version."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import InvalidInputError
from lsm_engine.base.modes import RowKind
from lsm_engine.base.record import record
from lsm_engine.kernels.merge_runs import MergeOrder
from lsm_engine.merge.function import MergeFunction
from lsm_engine.schema.table_schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema

MARK = "_version"
"""A column that is added to versions while they are merged."""
_NOTHING = "nothing of it lasts: newer versions replaced it, or took it back"


@record
class KeyOutcome:
    """The merged row (None: the key is not there); per version what it gives, and a verdict."""

    row: Mapping[str, Any] | None
    gives: tuple[tuple[str, ...], ...]
    verdicts: tuple[str, ...]
    verdict: str


def outcome_of(
    schema: TableSchema,
    function: MergeFunction,
    order: MergeOrder,
    versions: Sequence[pa.RecordBatch],
) -> KeyOutcome:
    """Return what one key's versions, each an input of one row, become in this order."""
    if not versions:
        return KeyOutcome(
            row=None, gives=(), verdicts=(), verdict="no version is read: the key is not there"
        )
    try:
        if function.keeps_rows:
            return _chosen(schema, function, order, versions)
        return _folded(schema, function, order, versions)
    except InvalidInputError as refused:
        return KeyOutcome(
            row=None,
            gives=tuple(() for _ in versions),
            verdicts=tuple("the versions cannot be merged" for _ in versions),
            verdict=f"the versions cannot be merged: {refused}",
        )


def _chosen(
    schema: TableSchema,
    function: MergeFunction,
    order: MergeOrder,
    versions: Sequence[pa.RecordBatch],
) -> KeyOutcome:
    """One version is the row as it is: mark them, and see which one comes out."""
    marked = [
        batch.append_column(MARK, pa.array([index], pa.int32()))
        for index, batch in enumerate(versions)
    ]
    merged = function.merge(order, marked)
    places = order.run.tolist()
    if not merged.num_rows:
        ignored = tuple("ignored: its kind of row does nothing here" for _ in places)
        gives: tuple[tuple[str, ...], ...] = tuple(() for _ in places)
        verdict = "every version is ignored: the key is not there"
        return KeyOutcome(row=None, gives=gives, verdicts=ignored, verdict=verdict)
    winner = places.index(merged.column(MARK)[0].as_py())
    deleted = _is_deleted(merged)
    values = () if deleted else _values(schema)
    verdicts = [
        (f"replaced by version {winner + 1}" if index < winner else f"version {winner + 1} counts")
        if index != winner
        else ("takes the key away" if deleted else "is the row")
        for index in range(len(places))
    ]
    why = _why(order, versions, winner)
    return KeyOutcome(
        row=None if deleted else _row(schema, merged),
        gives=tuple(values if index == winner else () for index in range(len(places))),
        verdicts=tuple(verdicts),
        verdict=f"version {winner + 1} {'takes the key away' if deleted else 'is the row'}{why}",
    )


def _why(order: MergeOrder, versions: Sequence[pa.RecordBatch], winner: int) -> str:
    if len(versions) == 1:
        return ": there is no other"
    numbers = [versions[index].column(SEQUENCE_NUMBER)[0].as_py() for index in order.run.tolist()]
    if numbers.count(numbers[winner]) > 1:
        return (
            f": sequence number {numbers[winner]} is in {numbers.count(numbers[winner])} files, "
            "of which the newer run counts"
        )
    return ""


def _folded(
    schema: TableSchema,
    function: MergeFunction,
    order: MergeOrder,
    versions: Sequence[pa.RecordBatch],
) -> KeyOutcome:
    """A column is given by the version from which on its merged value is what it is in the end."""
    states = [
        function.merge(_first(order, count), versions) for count in range(1, len(versions) + 1)
    ]
    final = states[-1]
    deleted = _is_deleted(final)
    gives: list[tuple[str, ...]] = [() for _ in states]
    if deleted:
        verdicts = [_NOTHING] * len(states)
        index = _since(states, None)
        verdicts[index] = "takes the key away"
        verdict = f"version {index + 1} takes the key away"
        return KeyOutcome(row=None, gives=tuple(gives), verdicts=tuple(verdicts), verdict=verdict)
    row = _row(schema, final)
    for name in _values(schema):
        if row[name] is not None:
            index = _since(states, name)
            gives[index] = (*gives[index], name)
    verdicts = [f"decides {', '.join(names)}" if names else _NOTHING for names in gives]
    takers = sum(bool(names) for names in gives)
    verdict = f"the row is put together from {takers} of {len(states)} versions"
    return KeyOutcome(row=row, gives=tuple(gives), verdicts=tuple(verdicts), verdict=verdict)


def _since(states: Sequence[pa.Table], name: str | None) -> int:
    """Return the state from which on a column (None: the lack of the key) stays as it is."""
    texts = [_text(state, name) for state in states]
    index = len(texts) - 1
    while index and texts[index - 1] == texts[index]:
        index -= 1
    return index


def _text(state: pa.Table, name: str | None) -> str:
    # Equal values of one column look the same: NaN too, which does not equal itself.
    if _is_deleted(state):
        return "deleted"
    return "there" if name is None else f"value {state.column(name)[0].as_py()!r}"


def _first(order: MergeOrder, count: int) -> MergeOrder:
    return MergeOrder(run=order.run[:count], row=order.row[:count], starts=np.zeros(1, np.int64))


def _is_deleted(state: pa.Table) -> bool:
    return not state.num_rows or RowKind(state.column(VALUE_KIND)[0].as_py()).is_retract


def _row(schema: TableSchema, state: pa.Table) -> dict[str, Any]:
    return dict(state.select(schema.names).to_pylist()[0])


def _values(schema: TableSchema) -> tuple[str, ...]:
    return tuple(name for name in schema.names if name not in schema.primary_keys)
