"""Column lineage of a SQL query."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
import pyarrow as pa

from lsm_engine import ErrorKind, InvalidInputError


def column_lineage_of(
    sql: str, tables: Mapping[str, tuple[dg.AssetKey, pa.Schema]], *, dialect: str = "spark"
) -> dict[str, Sequence[tuple[dg.AssetKey, str]]]:
    """Return, for each column of a query, the (asset, column) pairs from which its value is computed.

    The result fits `TableDeclaration.column_lineage`. Columns that only filter or join rows are no sources.

    Args:
        sql: One query.
        tables: Asset key and columns by the name that the query uses for a table.
        dialect: sqlglot's name of the SQL dialect, such as "spark" or "duckdb".

    Raises InvalidInputError if `sql` is not one query over these tables.
    """
    from sqlglot import exp, parse_one  # noqa: PLC0415 -- it takes a tenth of a second to import
    from sqlglot.errors import SqlglotError  # noqa: PLC0415
    from sqlglot.lineage import lineage  # noqa: PLC0415
    from sqlglot.optimizer.qualify import qualify  # noqa: PLC0415

    schema: dict[str, Any] = {
        name: dict.fromkeys(columns.names, "unknown") for name, (_, columns) in tables.items()
    }
    # sqlglot changes the case of names by the dialect. Assets keep the case that their schema has.
    columns_by_name = {
        (name.lower(), column.lower()): (key, column)
        for name, (key, columns) in tables.items()
        for column in columns.names
    }
    sources_by_column: dict[str, Sequence[tuple[dg.AssetKey, str]]] = {}
    try:
        query = qualify(parse_one(sql, dialect=dialect), schema=schema, dialect=dialect)
        if not isinstance(query, exp.Query):
            raise SqlglotError("it is no query")
        for column in query.named_selects:
            sources = (
                columns_by_name[node.expression.name.lower(), exp.to_column(node.name).name.lower()]
                for node in lineage(column, query.sql(dialect), schema, dialect=dialect).walk()
                if isinstance(node.expression, exp.Table)
            )
            sources_by_column[column] = tuple(dict.fromkeys(sources))
    except (SqlglotError, KeyError) as error:
        raise InvalidInputError(
            f"columns cannot be followed through this SQL: {error}; it has to be one query over "
            + (", ".join(tables) or "some tables"),
            kind=ErrorKind.INVALID_FILTER,
            sql=sql,
        ) from error
    return sources_by_column
