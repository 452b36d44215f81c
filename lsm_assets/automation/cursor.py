"""Cursors of sensors over many tables: the state of each table, and the table with which the next tick begins."""

import base64
import json
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from lsm_assets.model.declaration import TableDeclaration

TICK_SECONDS = 0.6
"""Seconds that a tick spends on many tables. The next tick goes on with the others."""
FEW_TABLES, FEW_SECONDS = 20, 20.0
"""Up to FEW_TABLES tables are all evaluated in each tick, within FEW_SECONDS.

Dagster ends a tick after 60 s, and its results are lost.
"""
UNCOMPRESSED_MAX = 4_000
"""Longer cursors (characters) are compressed, because Dagster stores the cursor with each tick."""

_POSITION, _PACKED = "", "z:"
_NAMES_MAX = 20
T = TypeVar("T")


def read_cursor(text: str | None) -> dict[str, dict[str, Any]]:
    """Return the states by table of a cursor; empty for the first tick and for a cursor that cannot be read."""
    try:
        if text and text.startswith(_PACKED):
            text = zlib.decompress(base64.b85decode(text.removeprefix(_PACKED))).decode()
        states = json.loads(text) if text else {}
    except (ValueError, zlib.error):
        # Another version or a user may have written it. An empty state only costs another evaluation of each table.
        return {}
    if not isinstance(states, dict):
        return {}
    return {str(name): state for name, state in states.items() if isinstance(state, dict)}


def write_cursor(states: Mapping[str, Mapping[str, Any]]) -> str:
    """Return states as a cursor. The same states give the same cursor."""
    text = json.dumps(states, sort_keys=True, separators=(",", ":"))
    if len(text) <= UNCOMPRESSED_MAX:
        return text
    return _PACKED + base64.b85encode(zlib.compress(text.encode(), 9)).decode()


def tables_in_turn(
    declarations: Sequence[TableDeclaration],
    states: dict[str, dict[str, Any]],
    *,
    seconds: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[TableDeclaration]:
    """Yield tables in a round-robin order, beginning where the last tick stopped. At least one is yielded.

    Args:
        declarations: All tables of the sensor.
        states: States of the cursor. The first table of the next tick is stored in it, and states of tables that are
            no longer declared are deleted.
        seconds: Time after which no further table is yielded; None for the default.
        clock: Clock in seconds.
    """
    if seconds is None:
        seconds = FEW_SECONDS if len(declarations) <= FEW_TABLES else TICK_SECONDS
    names = [declaration.name for declaration in declarations]
    first = states.pop(_POSITION, {}).get("next")
    for dropped in states.keys() - set(names):
        del states[dropped]
    start = names.index(first) if first in names else 0
    deadline = clock() + seconds
    for number in range(len(names)):
        index = (start + number) % len(names)
        if number and clock() >= deadline:
            states[_POSITION] = {"next": names[index]}
            return
        yield declarations[index]


def failure_message(
    failed: Mapping[str, Exception], looked_at: int, states: Mapping[str, Mapping[str, Any]]
) -> str:
    """Return a message with the tables that a tick could not read; "" if it read all.

    Raises the first error if the tick covered all tables and could read none. A failed tick keeps neither the cursor
    nor events, so that it may fail only if it has nothing to store.
    """
    if failed and len(failed) == looked_at and _POSITION not in states:
        raise next(iter(failed.values()))
    names, hidden_count = ", ".join(list(failed)[:_NAMES_MAX]), len(failed) - _NAMES_MAX
    return (
        f"cannot look at {names}{f' and {hidden_count} more' if hidden_count > 0 else ''}"
        if failed
        else ""
    )


def tick_interval(declarations: Sequence[T], seconds: int) -> int:
    """Return the seconds between ticks. Sensors over more than 80 tables tick more often, so that turns come sooner."""
    return max(5, seconds * 80 // max(80, len(declarations)))
