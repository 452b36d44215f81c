"""The part of a Table that reads rows, into whatever people go on with."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from lsm_engine.base.errors import InvalidInputError
from lsm_engine.base.instant import Moment, millis_of
from lsm_engine.prune.where import Filter
from lsm_engine.table.find.newest_keys import NewestKeys
from lsm_engine.table.ground.given_names import names_of
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.time_travel import version_named
from lsm_engine.table.read.scan import Scan
from lsm_engine.table.read.scan_plan import ScanRequest

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

    from lsm_engine.table.read.arrow_dataset import ArrowDataset


class TableReads:
    """Rows of one state of the table, the newest unless another is named."""

    session: TableSession
    _kept_keys: NewestKeys | None = None

    def scan(
        self,
        columns: str | Sequence[str] | None = None,
        where: Filter | None = None,
        snapshot_id: int | None = None,
        tag: str | None = None,
        as_of_millis: int | None = None,
        limit: int | None = None,
        *,
        version: int | str | None = None,
        as_of: Moment | None = None,
    ) -> Scan:
        """Return a read of the newest snapshot, or of the one that an id, a tag or a time names.

        `columns`: one name, or several. `where`: a predicate, SQL text, or an Arrow expression.
        `version`: a snapshot's id, or a tag's name. `as_of`: the latest snapshot at or before a
        datetime, ISO text or milliseconds, UTC without an offset; `as_of_millis` the same. Nothing is
        read until the scan is asked for rows. Raises NotFoundError for names that do not exist,
        ExpiredError for snapshots that retention has taken, InvalidInputError if two states are named.
        """
        if version is not None:
            if (snapshot_id, tag) != (None, None):
                raise InvalidInputError(
                    "version= names a snapshot or a tag; leave out snapshot_id= and tag=",
                    version=version,
                )
            named = version_named(version)
            snapshot_id, tag = named.get("snapshot_id"), named.get("tag")
        if as_of is not None:
            if as_of_millis is not None:
                raise InvalidInputError("as_of= and as_of_millis= both name a time; give one")
            as_of_millis = self._time_of(as_of)
        request = ScanRequest(
            columns=None if columns is None else names_of(columns, "columns"),
            where=where,
            snapshot_id=snapshot_id,
            tag=tag,
            as_of_millis=as_of_millis,
            limit=limit,
        )
        return Scan(
            self.session, request, keys=self._keys if self.session.schema.has_primary_key else None
        )

    @property
    def _keys(self) -> NewestKeys:
        """What finds keys, made anew once the table has other columns or options."""
        kept = self._kept_keys
        if kept is None or kept.session is not self.session:
            self._kept_keys = kept = NewestKeys(self.session)
        return kept

    def _time_of(self, as_of: Moment) -> int:
        try:
            return millis_of(as_of)
        except InvalidInputError as wrong:
            if isinstance(as_of, str) and self.session.tags.find(as_of) is not None:
                hint = f"{as_of!r} is a tag, which version= names"
                raise InvalidInputError(hint, tag=as_of) from wrong
            raise

    def to_arrow(self, columns: str | Sequence[str] | None = None, **read: Any) -> pa.Table:
        """Return the rows as an Arrow table; arguments as of `scan`."""
        return self.scan(columns, **read).to_arrow()

    def to_reader(
        self, columns: str | Sequence[str] | None = None, **read: Any
    ) -> pa.RecordBatchReader:
        """Return the rows as a stream of Arrow batches, in bounded memory; arguments as of `scan`."""
        return self.scan(columns, **read).to_reader()

    def to_pandas(self, columns: str | Sequence[str] | None = None, **read: Any) -> "pd.DataFrame":
        """Return the rows as a pandas DataFrame; arguments as of `scan`."""
        return self.scan(columns, **read).to_pandas()

    def to_polars(self, columns: str | Sequence[str] | None = None, **read: Any) -> "pl.LazyFrame":
        """Return the rows as a polars LazyFrame; arguments as of `scan`.

        Nothing is read before `collect`; the columns, filters and limits of the query reach the scan.
        The state is chosen now: later commits do not change what the frame gives.
        Raises UnsupportedError where polars is not installed.
        """
        engines = import_module("lsm_engine.table.read.query_engines")
        frame: pl.LazyFrame = engines.lazy_frame(self.scan(columns, **read))
        return frame

    def to_duckdb(
        self,
        connection: "duckdb.DuckDBPyConnection | None" = None,
        columns: str | Sequence[str] | None = None,
        **read: Any,
    ) -> "duckdb.DuckDBPyRelation":
        """Return the rows as a relation of a DuckDB connection (None: the default one); else as `scan`.

        `duckdb.sql("from orders")` then finds a variable `orders` that holds it. Nothing is read before
        the query runs; its columns and filters reach the scan. The state is chosen now.
        Raises UnsupportedError where DuckDB is not installed.
        """
        engines = import_module("lsm_engine.table.read.query_engines")
        relation: duckdb.DuckDBPyRelation = engines.duckdb_relation(
            self.scan(columns, **read), connection
        )
        return relation

    def to_dataset(self, columns: str | Sequence[str] | None = None, **read: Any) -> "ArrowDataset":
        """Return the rows as a pyarrow dataset; arguments as of `scan`.

        For DuckDB (`from orders`, where `orders` holds it), `polars.scan_pyarrow_dataset` and whoever
        else takes a dataset. The state is chosen now.
        """
        dataset: type[ArrowDataset] = import_module(
            "lsm_engine.table.read.arrow_dataset"
        ).ArrowDataset
        whole = self.scan(columns, **read)
        return dataset(whole.schema, whole.narrowed)

    def head(self, n: int = 5, columns: str | Sequence[str] | None = None, **read: Any) -> pa.Table:
        """Return some `n` rows, to have a look; arguments as of `scan`."""
        return self.scan(columns, limit=n, **read).to_arrow()

    def count(self, where: Filter | None = None, **read: Any) -> int:
        """Return the number of rows; arguments as of `scan`."""
        return self.scan(where=where, **read).count()

    def __len__(self) -> int:
        """Return the number of rows, as `count` does.

        `list(table)` asks for it first, which reads the keys once more where rows have to be merged:
        `to_arrow().to_pylist()` does not.
        """
        return self.count()

    def __bool__(self) -> bool:
        return True  # a table is there, whether or not it has rows

    def __enter__(self) -> NoReturn:
        raise TypeError(
            "a table holds nothing open, and needs no `with`; table.writer() and catalogs are closed"
        )

    def __exit__(self, *_: object) -> None:
        """Python asks for this before it calls `__enter__`, which refuses."""

    if not TYPE_CHECKING:  # a checker shall go on refusing names that are none

        def __getattr__(self, name: str) -> Any:
            """Raise an AttributeError: of a column, with how to read it and to name it in a filter."""
            session = self.__dict__.get("session")
            if session is not None and name in session.schema.names:
                raise AttributeError(
                    f"a table has no {name!r}: to_arrow({name!r}) reads the column, and a filter names "
                    f"it by lsm.col({name!r})"
                )
            return super().__getattr__(name)

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a table is not called: to_arrow() reads it, scan(...) some of it")

    def __contains__(self, given: object) -> NoReturn:
        raise TypeError(
            "a table is not searched by `in`: `name in table.schema` asks for a column, "
            "lookup(keys) for rows"
        )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as dictionaries; for people at a prompt, not for many rows."""
        for batch in self.scan().to_batches():
            yield from batch.to_pylist()

    def __getitem__(self, columns: object) -> NoReturn:
        named = columns if isinstance(columns, str | list) else "name"
        raise TypeError(
            f"a table is not indexed: to_arrow({named!r}) reads columns, head(n) some rows, "
            "lookup(keys) rows by key"
        )

    def __setitem__(self, column: object, value: object) -> NoReturn:
        raise TypeError(f"a column is changed by update(set={{{column!r}: value}}, where=...)")

    def __delitem__(self, column: object) -> NoReturn:
        raise TypeError(
            f"a column is dropped by alter(lsm.DropColumn({column!r})), rows by delete(keys)"
        )

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)
