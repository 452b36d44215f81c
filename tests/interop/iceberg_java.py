"""Iceberg's own Java library as a reader of tables with Iceberg metadata, in a process that stays open."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from tests.interop.environments import HERE, EnvironmentFailedError, made_once, run, spark_jars
from tests.interop.other_sparks import ICEBERG

SOURCE = HERE / "IcebergRows.java"
_SPARK_JARS = (
    "hadoop-client-api",
    "hadoop-client-runtime",
    "slf4j-api",
    "jcl-over-slf4j",
    "zstd-jni",
    "snappy-java",
    "lz4-java",
)
"""Beside the runtime for Spark, which holds Iceberg's library."""
_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC")


class RefusedError(AssertionError):
    """Iceberg's library cannot read the table."""


def why_not() -> str | None:
    """Why this machine cannot run it, or None; fetches the jar of iceberg-spark the first time."""
    for tool in ("mvn", "javac", "java"):
        if shutil.which(tool) is None:
            return f"{tool} is not on this machine"
    try:
        _class_path()
    except EnvironmentFailedError as failed:
        return f"Iceberg's library cannot be had: {failed}"
    return None


def _class_path() -> str:
    """Our program, compiled against the library, and the jars of both."""
    jars = os.pathsep.join(map(str, [*ICEBERG.jars(), *spark_jars(_SPARK_JARS)]))
    facts: dict[str, object] = {
        "source": hashlib.sha256(SOURCE.read_bytes()).hexdigest(),
        "artifacts": list(ICEBERG.artifacts),
    }
    classes = made_once(
        "iceberg-java-classes",
        facts,
        lambda folder: (
            run("javac", "-nowarn", "-cp", jars, "-d", str(folder), str(SOURCE)) and None
        ),
    )
    return f"{classes}{os.pathsep}{jars}"


class IcebergJava:
    """Reads tables by their directories, or by a metadata file."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def rows(
        self,
        table: str,
        *,
        snapshot: int | None = None,
        ref: str | None = None,
        row_filter: dict[str, Any] | None = None,
    ) -> pa.Table:
        """Return the rows of the newest or another snapshot, those that an expression keeps.

        `row_filter`: in the form of Iceberg's `ExpressionParser`, as `comparison` makes it.
        """
        request = {"snapshot": snapshot, "ref": ref, "row_filter": row_filter}
        (rows,) = self.answers(table, [request])
        return rows

    def answers(self, table: str, requests: Sequence[dict[str, Any]]) -> list[pa.Table]:
        """Return the rows for each of some requests, the arguments of `rows`; it reads on while they are taken."""
        lines = [
            json.dumps(
                {
                    "table": table,
                    "snapshot": request.get("snapshot"),
                    "ref": request.get("ref"),
                    "filter": request.get("row_filter"),
                }
            )
            for request in requests
        ]
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{line}\n" for line in lines))
        self._process.stdin.flush()
        return [self._answer() for _ in requests]

    def _answer(self) -> pa.Table:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the JVM has ended"
        answer = json.loads(line, parse_float=float)
        if "error" in answer:
            raise RefusedError(f"Iceberg's library: {answer['error']}")
        schema = schema_to_pyarrow(
            Schema.model_validate_json(answer["schema"]), include_field_ids=False
        )
        columns = list(zip(*answer["rows"], strict=True)) or [()] * len(schema)
        arrays = [
            pa.array([_value(value, field.type) for value in column], field.type)
            for column, field in zip(columns, schema, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=schema)


def _value(value: Any, kind: pa.DataType) -> Any:
    """Return a value of an answer as PyArrow takes it."""
    if value is None:
        return None
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return bytes.fromhex(value)
    if pa.types.is_struct(kind):
        return {
            field.name: _value(member, field.type)
            for member, field in zip(value, kind, strict=True)
        }
    if pa.types.is_map(kind):
        return [(_value(key, kind.key_type), _value(item, kind.item_type)) for key, item in value]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_value(item, kind.value_type) for item in value]
    return value


@contextmanager
def iceberg_java() -> Iterator[IcebergJava]:
    """Start the process; EnvironmentFailedError if the library is not to be had."""
    process = subprocess.Popen(
        ["java", *_FLAGS, "-cp", _class_path(), SOURCE.stem],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
    )
    with process:
        try:
            yield IcebergJava(process)
        finally:
            process.stdin.close()  # type: ignore[union-attr]
