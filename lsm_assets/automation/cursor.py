"""A sensor's cursor: one small JSON object per table."""

import json
from collections.abc import Mapping
from typing import Any


def read_cursor(text: str | None) -> dict[str, dict[str, Any]]:
    """Return what a cursor remembers; nothing for a first tick, or for text that is not ours."""
    try:
        states = json.loads(text) if text else {}
    except ValueError:
        return {}
    if not isinstance(states, dict):
        return {}
    return {str(name): state for name, state in states.items() if isinstance(state, dict)}


def write_cursor(states: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of a cursor, the same for the same states."""
    return json.dumps(states, sort_keys=True, separators=(",", ":"))
