"""The rows of a SELECT as an Arrow table."""

from typing import Any

import pyarrow as pa
from sqlalchemy import Boolean, Connection, Integer, LargeBinary, Select


def arrow_rows(connection: Connection, statement: Select[Any]) -> pa.Table:
    """Return the rows of `statement`; types follow from its columns, so no rows have them too."""
    rows = connection.execute(statement).all()
    selected = list(statement.selected_columns)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(selected)
    return pa.table(
        {
            column.name: pa.array(values, type=_arrow_type(column.type))
            for column, values in zip(selected, columns, strict=True)
        }
    )


def _arrow_type(kind: object) -> pa.DataType:
    if isinstance(kind, Boolean):
        return pa.bool_()
    if isinstance(kind, Integer):
        return pa.int64()
    return pa.binary() if isinstance(kind, LargeBinary) else pa.string()
