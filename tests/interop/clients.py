"""The three real Paimon clients behind one small protocol, each a long-lived process of its own.

Tables are named by absolute directory. An operation that a client lacks raises
``UnsupportedByClient``; what goes wrong inside a client arrives as ``ClientError`` with its
own words. A client that does not answer in time is killed.
"""

import contextlib
import json
import os
import selectors
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

import pyarrow as pa

from tests.interop.canonical import Row, canonical_rows, encode
from tests.interop.environments import Environment, environment
from tests.interop.table_files import latest_schema, paimon_type

FieldType = str | dict[str, Any]
Fields = pa.Schema | Sequence[tuple[str, FieldType]]


class UnsupportedByClient(Exception):
    """The client has no way to do this."""


class ClientError(Exception):
    """The client failed; ``kind`` is its exception's name, ``trace`` where it came from."""

    def __init__(self, client: str, kind: str, message: str, trace: str = "") -> None:
        # Java's messages begin with the kind already.
        said = message if message.startswith(kind) else f"{kind}: {message}"
        super().__init__(f"{client}: {said}")
        self.kind = kind
        self.trace = trace


@dataclass(frozen=True, kw_only=True)
class FilteredRead:
    """What a filter gave, and how much the plan still held: fewer means statistics were used.

    ``planned_files`` is None where the client does not tell; ``planned_rows`` counts the rows of
    the planned files before merging and filtering.
    """

    table: pa.Table
    planned_files: int | None
    planned_rows: int


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What an operation took inside the client's process, moving rows between processes left out."""

    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int | None


class Client:
    """One client in one process, started at its first operation and killed by ``close``."""

    name: ClassVar[str]

    def __init__(self, *, timeout_seconds: float = 300.0) -> None:
        self.timeout_seconds = timeout_seconds
        self.exchange = Path(tempfile.mkdtemp(prefix=f"interop-{self.name}-"))
        self.process: subprocess.Popen[bytes] | None = None
        self.requests = 0
        self.unread = b""
        self.spent: Spent | None = None

    # ---- reading

    def read(
        self,
        path: Path | str,
        *,
        snapshot_id: int | None = None,
        tag: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """The table at its newest snapshot, at another, or at a tag."""
        return self._read(path, snapshot_id, tag, columns, None).table

    def read_rows(
        self, path: Path | str, *, snapshot_id: int | None = None, tag: str | None = None
    ) -> list[Row]:
        """The same, as rows in the fixtures' spelling."""
        return canonical_rows(self.read(path, snapshot_id=snapshot_id, tag=tag))

    def read_filtered(
        self, path: Path | str, column: str, operator: str, value: Any
    ) -> FilteredRead:
        """Rows where a column is ``= != < <= > >=`` a value, ``in`` several or ``between`` two."""
        return self._read(path, None, None, None, [column, operator, encode(value)])

    def changes(
        self, path: Path | str, snapshot_id: int, mode: str = "changelog"
    ) -> list[tuple[str, Row]]:
        """Kind and row of one snapshot's changelog files, or with ``delta`` of its new data files."""
        out = self._out()
        kinds = self._call(
            "changes", path=str(path), out=str(out), snapshot_id=snapshot_id, mode=mode
        )
        return list(zip(kinds, canonical_rows(take(out)), strict=True))

    def lookup(self, path: Path | str, keys: pa.Table) -> list[Row | None]:
        """Per key its row or None; the keys hold primary key and partition columns."""
        out = self._out()
        found = self._call("lookup", path=str(path), keys=str(self._put(keys)), out=str(out))
        rows = iter(canonical_rows(take(out)))
        return [next(rows) if is_found else None for is_found in found]

    def buckets(self, path: Path | str, rows: pa.Table) -> list[int]:
        """The bucket that this client gives each row."""
        return self._call("buckets", path=str(path), rows=str(self._put(rows)))

    def files(self, path: Path | str) -> list[dict[str, Any]]:
        """Live data files, as the fixtures' ``live_files``; only Java tells ``partition_hex``."""
        return sorted(self._call("files", path=str(path)), key=lambda file: file["file"])

    # ---- writing

    def create(
        self,
        warehouse: Path | str,
        name: str,
        fields: Fields,
        *,
        primary_key: Sequence[str] = (),
        partitioned_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> Path:
        """Create ``database.table`` in a warehouse folder and return the table's directory.

        Field types are spelled as in schema files ("INT NOT NULL", an object when nested), or come
        as an Arrow schema.
        """
        database, table = name.split(".")
        if isinstance(fields, pa.Schema):
            fields = [
                (field.name, paimon_type(field.type, nullable=field.nullable)) for field in fields
            ]
        made = self._call(
            "create",
            warehouse=str(warehouse),
            database=database,
            name=table,
            fields=[list(field) for field in fields],
            primary_key=list(primary_key),
            partitioned_by=list(partitioned_by),
            options=dict(options or {}),
        )
        return Path(made)

    def write(
        self,
        path: Path | str,
        table: pa.Table,
        kinds: Sequence[str] | None = None,
        *,
        overwrite: Mapping[str, str] | None = None,
    ) -> int | None:
        """Write rows in one commit; its snapshot id, or None if none came of it.

        ``kinds`` holds ``+I -U +U -D`` per row. Where the table has ``rowkind.field`` they go into
        that column, as every client wants it; else only Java can take them. ``overwrite`` is a
        partition spec, ``{}`` for the whole table.
        """
        field = latest_schema(path)["options"].get("rowkind.field")
        if kinds is not None and field is not None:
            table = table.append_column(field, pa.array(kinds, pa.string()))
            kinds = None
        elif kinds is not None and all(kind == "+I" for kind in kinds):
            kinds = None
        spec = None if overwrite is None else dict(overwrite)
        given = None if kinds is None else list(kinds)
        return self._call(
            "write", path=str(path), rows=str(self._put(table)), kinds=given, overwrite=spec
        )

    def compact(self, path: Path | str, *, full: bool = True) -> int | None:
        """Compact wholly, or as the universal pick decides; the snapshot id if anything was done."""
        return self._call("compact", path=str(path), full=full)

    def create_tag(self, path: Path | str, name: str, snapshot_id: int | None = None) -> None:
        """Tag a snapshot, the newest if none is named."""
        self._call("create_tag", path=str(path), name=name, snapshot_id=snapshot_id)

    def expire(
        self,
        path: Path | str,
        *,
        retain_max: int = 1,
        retain_min: int = 1,
        older_than_millis: int = 0,
    ) -> int:
        """Expire snapshots; how many went."""
        return self._call(
            "expire",
            path=str(path),
            retain_max=retain_max,
            retain_min=retain_min,
            older_than_millis=older_than_millis,
        )

    # ---- the process

    def close(self) -> None:
        """Kill the process and drop the exchanged files."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for stream in (self.process.stdin, self.process.stdout):
                # What was still waiting to be sent has nobody left to read it.
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
            self.process = None
        shutil.rmtree(self.exchange, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _read(self, path, snapshot_id, tag, columns, where) -> FilteredRead:
        out = self._out()
        planned = self._call(
            "read",
            path=str(path),
            out=str(out),
            snapshot_id=snapshot_id,
            tag=tag,
            columns=None if columns is None else list(columns),
            where=where,
        )
        return FilteredRead(
            table=take(out), planned_files=planned["files"], planned_rows=planned["rows"]
        )

    def _out(self) -> Path:
        self.exchange.mkdir(exist_ok=True)
        return self.exchange / f"{self.requests}-out.arrow"

    def _put(self, table: pa.Table) -> Path:
        self.exchange.mkdir(exist_ok=True)
        path = self.exchange / f"{self.requests}-in.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return path

    def _call(self, operation: str, **arguments: Any) -> Any:
        """Send one request and wait for its answer."""
        if "path" in arguments and not os.path.isabs(arguments["path"]):
            raise ValueError(f"table paths must be absolute: {arguments['path']}")
        process = self._started()
        self.requests += 1
        request = {"id": self.requests, "op": operation, "args": arguments}
        # A process that died in between shows when its answer is read.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        answer = json.loads(self._line(operation))
        assert answer["id"] == self.requests
        spent = answer["spent"]
        self.spent = Spent(
            wall_seconds=spent["wall"], cpu_seconds=spent["cpu"], peak_bytes=spent["peak_bytes"]
        )
        if "unsupported" in answer:
            raise UnsupportedByClient(f"{self.name}: {answer['unsupported']}")
        if "error" in answer:
            error = answer["error"]
            raise ClientError(self.name, error["type"], error["message"], error["trace"])
        return answer["ok"]

    def program(self) -> tuple[Environment, Path]:
        """The environment that the client lives in, and the script that drives it there."""
        return environment(self.name), Path(__file__).with_name(f"driver_{self.name}.py")

    def _started(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            self.exchange.mkdir(exist_ok=True)
            self.unread = b""
            home, driver = self.program()
            with (self.exchange / "stderr.log").open("wb") as log:
                self.process = subprocess.Popen(
                    [str(home.python), str(driver)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    # What a client spills goes with the exchange folder, however its process ends.
                    env=os.environ | home.variables | {"TMPDIR": str(self.exchange), "TZ": "UTC"},
                )
        return self.process

    def _line(self, operation: str) -> bytes:
        """The next answer, or the end of the client: dead, or too slow and therefore killed."""
        stdout = self.process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while b"\n" not in self.unread:
                if not selector.select(self.timeout_seconds):
                    self._end(operation, "NoAnswer", f"none in {self.timeout_seconds} s")
                received = os.read(stdout.fileno(), 1 << 16)
                if not received:
                    self._end(operation, "ProcessEnded", "the client's process ended")
                self.unread += received
        line, _, self.unread = self.unread.partition(b"\n")
        return line

    def _end(self, operation: str, kind: str, message: str) -> None:
        tail = (self.exchange / "stderr.log").read_text(errors="replace")[-3000:]
        self.close()
        raise ClientError(self.name, kind, f"{operation}: {message}; it last said:\n{tail}")


class PypaimonClient(Client):
    """pypaimon 2.1.0: reads and writes; no compaction, expiry or lookup."""

    name = "pypaimon"

    def copy_readable(self, path: Path | str, target: Path | str) -> Path:
        """A copy whose manifests have the column ``_VALUE_STATS_COLS``, null.

        Java 0.9.0 does not write it and pypaimon 2.1.0 reads no manifest without it, so this is the
        only way to let the one read the other's tables.
        """
        self._call("copy_readable", path=str(path), target=str(target))
        return Path(target)

    def catalog(self, url: str, warehouse: Path | str, operation: str, **arguments: Any) -> Any:
        """One operation on names in a JDBC catalog, by the URL that we open it with.

        ``tables``; ``create`` name, fields, primary_key, options; ``drop`` name; ``rename`` old, new.
        """
        where = {"uri": jdbc_uri(url), "warehouse": str(warehouse)}
        return self._call("catalog", catalog=where, what=operation, arguments=arguments)

    def catalog_rows(self, url: str, warehouse: Path | str, name: str) -> list[Row]:
        """The rows of a table that a JDBC catalog names."""
        out = self._out()
        self.catalog(url, warehouse, "read", name=name, out=str(out))
        return canonical_rows(take(out))


def jdbc_uri(url: str) -> str:
    """The URL of a catalog as JDBC spells it: who asks is told by parameters."""
    parsed = urlsplit(url)
    if parsed.scheme != "postgresql":
        return f"jdbc:{url.replace('///', '', 1)}"
    place = f"{parsed.hostname}:{parsed.port}{parsed.path}"
    return f"jdbc:postgresql://{place}?user={parsed.username}&password={parsed.password}"


class RustClient(Client):
    """pypaimon-rust 0.4.0: reads and writes; no compaction, expiry, lookup or bucket of a row."""

    name = "rust"


class JavaClient(Client):
    """Java Apache Paimon 0.9.0: everything here. Column names must be lower case."""

    name = "java"

    def sort_read(
        self, path: Path | str, keys: pa.Table, file: Path | str, *, compression: str = "zstd"
    ) -> list[dict[str, str | None]]:
        """Per key looked up in a sort lookup file of a table: key, value, value written again (hex)."""
        found: list[dict[str, str | None]] = self._call(
            "sort_read",
            path=str(path),
            keys=str(self._put(keys)),
            file=str(file),
            compression=compression,
        )
        return found

    def sort_write(
        self,
        path: Path | str,
        rows: pa.Table,
        file: Path | str,
        *,
        block_bytes: int,
        compression: str,
        fpp: float | None,
    ) -> int:
        """Write rows in key order into a sort lookup file."""
        return int(
            self._call(
                "sort_write",
                path=str(path),
                rows=str(self._put(rows)),
                file=str(file),
                block_bytes=block_bytes,
                compression=compression,
                fpp=fpp,
            )
        )


def take(path: Path) -> pa.Table:
    """Read an exchanged file into memory and drop it."""
    with pa.OSFile(str(path), "rb") as source:
        table = pa.ipc.open_file(source).read_all()
    path.unlink()
    return table
