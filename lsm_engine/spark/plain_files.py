"""DataFrames that are Parquet files and nothing else: their rows are read past the JVM.

`spark.read.parquet(path)`, a view of it, and a choice of its columns, under other names or not. Taking such rows from
Spark means that it decodes them, makes rows of them and Arrow batches of those: several times the work of writing them.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from lsm_engine.base.errors import UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.spark.arrow_rows import arrow_schema_of
from lsm_engine.spark.session import is_classic
from lsm_engine.spark.shared_storage import runs_elsewhere

_FILES_MAX = 10_000
_BATCH_ROWS = 128 * 1024
_SETTINGS = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.fieldId.read.enabled": "false",
}
_REBASE = "spark.sql.parquet.datetimeRebaseModeInRead"
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_VERSION = b"org.apache.spark.version"


@record
class PlainFiles:
    """Local Parquet files that hold just the rows of a DataFrame. `columns`: their names in the files.

    `schema`: the DataFrame's columns, which the files have in the same types.
    """

    paths: tuple[str, ...]
    columns: tuple[str, ...]
    schema: pa.Schema

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream, file after file."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def table(self) -> pa.Table:
        """Return the rows, which are few."""
        return self.reader().read_all()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for path in self.paths:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(_BATCH_ROWS, columns=[*self.columns]):
                    arrays = [batch.column(name) for name in self.columns]
                    yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def plain_files(frame: DataFrame, most: int) -> PlainFiles | None:
    """Return the files whose rows a DataFrame is, of at most so many bytes; None where it is anything else.

    None too where Spark would not read from them what PyArrow does, or this process may not see the same files.
    """
    spark = frame.sparkSession
    if not most or not is_classic(spark) or runs_elsewhere(spark) or not _reads_alike(spark):
        return None
    relation, names = _relation(frame._jdf.queryExecution().optimizedPlan())  # noqa: SLF001 -- no other way
    if relation is None or int(relation.sizeInBytes()) > most:
        return None
    paths = [_local_path(uri) for uri in relation.location().inputFiles()]
    try:
        schema = arrow_schema_of(frame.schema)
    except UnsupportedError:
        return None
    if not 0 < len(paths) <= _FILES_MAX:
        return None
    found = tuple(path for path in paths if path is not None)
    if len(found) < len(paths) or not all(_holds(path, names, schema) for path in found):
        return None
    return PlainFiles(paths=found, columns=names, schema=schema)


def _reads_alike(spark: SparkSession) -> bool:
    as_usual = all(
        str(spark.conf.get(key, value)).lower() == value for key, value in _SETTINGS.items()
    )
    return as_usual and spark.conf.get(_REBASE, "CORRECTED") != "LEGACY"


def _relation(plan: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the Parquet files that a plan reads, and their names for its columns; None where it does more."""
    nothing = (None, ())
    chosen = None
    if plan.nodeName() == "Project":
        chosen = [_source(one) for one in _items(plan.projectList())]
        plan = plan.children().apply(0)
    if _kind(plan) != "LogicalRelation" or _kind(plan.relation()) != "HadoopFsRelation":
        return nothing
    relation = plan.relation()
    options = relation.options()
    plain = (
        relation.fileFormat().toString() == "Parquet"
        and relation.partitionSchema().isEmpty()
        and _kind(relation.location()) == "InMemoryFileIndex"
        and (options.isEmpty() or (options.size() == 1 and options.contains("path")))
    )
    names = {one.exprId().id(): one.name() for one in _items(plan.output())}
    wanted = [*names] if chosen is None else chosen
    if not plain or not all(number in names for number in wanted):
        return nothing
    return relation, tuple(names[number] for number in wanted)


def _source(expression: Any) -> int | None:
    """Return the number of the attribute that an expression hands on as it is."""
    if _kind(expression) == "Alias":
        expression = expression.child()
    return int(expression.exprId().id()) if _kind(expression) == "AttributeReference" else None


def _kind(jvm: Any) -> str:
    return str(jvm.getClass().getSimpleName())


def _items(seq: Any) -> Iterator[Any]:
    return (seq.apply(at) for at in range(seq.size()))


def _local_path(uri: str) -> str | None:
    parts = urlsplit(uri)
    is_local = parts.scheme == "file" and not parts.netloc and not parts.query
    return unquote(parts.path) if is_local and not parts.fragment else None


def _holds(path: str, names: tuple[str, ...], schema: pa.Schema) -> bool:
    """Whether a file has the columns in just the types of `schema`, and no dates of a calendar that Spark converts."""
    try:
        with pq.ParquetFile(path) as file:
            stored, metadata = file.schema_arrow, file.metadata.metadata or {}
    except (OSError, pa.ArrowInvalid):
        return False  # Spark says what is wrong with it
    if any(key in metadata for key in _LEGACY) or metadata.get(_VERSION, b"").startswith(b"2."):
        return False
    lower = [name.lower() for name in stored.names]
    return all(
        lower.count(name.lower()) == 1
        and name in stored.names
        and not pa.types.is_nested(field.type)
        and stored.field(name).type == field.type
        for name, field in zip(names, schema, strict=True)
    )
