"""A sensor's cursor: one small JSON object per table, and which table's turn it is."""

import base64
import json
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from lsm_assets.model.declaration import TableDeclaration

TICK_SECONDS = 0.6
"""How long a tick looks at very many tables before the rest has to wait for the next one."""
FEW_TABLES, FEW_SECONDS = 20, 20.0
"""So few tables are all looked at by every tick, for so long: Dagster ends a tick of 60 s, and all is lost."""
UNCOMPRESSED_MAX = 4_000
"""Characters from which on a cursor is compressed: Dagster keeps one with each tick."""

_POSITION, _PACKED = "", "z:"
_NAMES_MAX = 20
T = TypeVar("T")


def read_cursor(text: str | None) -> dict[str, dict[str, Any]]:
    """Return what a cursor remembers; nothing for a first tick, or for text that is not ours."""
    try:
        if text and text.startswith(_PACKED):
            text = zlib.decompress(base64.b85decode(text.removeprefix(_PACKED))).decode()
        states = json.loads(text) if text else {}
    except (ValueError, zlib.error):
        return {}
    if not isinstance(states, dict):
        return {}
    return {str(name): state for name, state in states.items() if isinstance(state, dict)}


def write_cursor(states: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of a cursor, the same for the same states."""
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
    """Yield tables from where the last tick stopped, for so many seconds; `states` has where the next begins.

    At least one. What `states` has of tables that are no longer declared is dropped.
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
    """Return in a few words which tables a tick could not look at; "" if it could look at all.

    Raises the first error if no table was left out of the turn and none could be read: only then does
    a tick that fails lose nothing, neither the position of the turn nor what it has to report.
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
    """Return the seconds between ticks that look at some of very many tables: shorter, so that turns come."""
    return max(5, seconds * 80 // max(80, len(declarations)))
