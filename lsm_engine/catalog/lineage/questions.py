"""Questions to a lineage and their answers as JSON, for a lineage behind a server."""

import base64
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import InvalidInputError
from lsm_engine.catalog.lineage.lineage import Lineage
from lsm_engine.catalog.lineage.queries import CompactionLineage, ExpiryImpact, FileLife, Origin
from lsm_engine.catalog.lineage.tables import LineageTables
from lsm_engine.catalog.names import TableName

QUESTIONS = tuple(
    name
    for name, _ in inspect.getmembers(LineageTables, inspect.isfunction)
    if not name.startswith("_") and name != "as_recorded"
)
"""The methods of a lineage that a server answers, by their names."""
_RECORDS: dict[str, Any] = {
    kind.__name__: kind for kind in (FileLife, CompactionLineage, Origin, ExpiryImpact)
}


def to_members(value: Any) -> Any:
    """Return an argument or an answer as JSON; rows as the bytes of an Arrow stream."""
    match value:
        case None | str():
            return value
        case bool() | np.bool_():
            return bool(value)
        case Integral():
            return int(value)
        case TableName():
            return {"table": [value.database, value.table, value.branch]}
        case pa.Table():
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, value.schema) as writer:
                writer.write_table(value)
            return {"rows": base64.b64encode(sink.getvalue()).decode()}
        case Mapping():
            return {"pairs": [[to_members(key), to_members(item)] for key, item in value.items()]}
        case Iterable():
            return [to_members(item) for item in value]
        case _ if type(value).__name__ in _RECORDS:
            members = {part.name: to_members(getattr(value, part.name)) for part in fields(value)}
            return {"record": type(value).__name__, "members": members}
        case _:
            raise InvalidInputError(
                f"a question to the lineage takes names, texts and numbers, not {type(value).__name__}",
                given=type(value).__name__,
            )


def from_members(members: Any, *, records: Mapping[str, Any] = _RECORDS) -> Any:
    """Return what JSON stands for; InvalidInputError for anything else.

    `records`: the records that may be in it. Without any there are no rows either, as in the arguments of a question.
    """
    read = partial(from_members, records=records)
    match members:
        case None | str() | bool() | int():
            return members
        case list():
            return [read(item) for item in members]
        case {"table": [str(database), str(table), str(branch)]}:
            return TableName(database=database, table=table, branch=branch).checked()
        case {"pairs": list(pairs)}:
            return {read(key): read(item) for key, item in pairs}
        case {"rows": str(text)} if records:
            return pa.ipc.open_stream(base64.b64decode(text)).read_all()
        case {"record": str(name), "members": dict(items)} if name in records:
            return records[name](**{key: read(item) for key, item in items.items()})
        case _:
            raise InvalidInputError(
                "a question to the lineage is malformed", given=repr(members)[:80]
            )


def answer(lineage: Lineage, question: str, arguments: Mapping[str, Any]) -> Any:
    """Return the answer to a question whose arguments are JSON; InvalidInputError for one that there is not."""
    if question not in QUESTIONS:
        raise InvalidInputError(
            f"the lineage has no question {question!r}; it has {', '.join(QUESTIONS)}",
            question=question,
        )
    method = getattr(lineage, question)
    try:
        values = {name: from_members(member, records={}) for name, member in arguments.items()}
        inspect.signature(method).bind(**values)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{question} is asked otherwise: {error}", question=question
        ) from error
    result = method(**values)
    # `synced` returns a lineage, which the client has.
    return None if isinstance(result, Lineage) else to_members(result)
