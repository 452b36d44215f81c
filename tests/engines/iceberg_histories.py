"""Random histories of tables with Iceberg metadata: after each step other engines read what a scan reads.

    python -m tests.engines.iceberg_histories --histories 2000
    python -m tests.engines.iceberg_histories --histories 2000 --readers java
    python -m tests.engines.iceberg_histories --histories 300 --readers pyiceberg,polars,duckdb,java,spark
    python -m tests.engines.iceberg_histories --histories 1 --seed 17 --layout "partial update" --verbose

A history is a table of a random layout and random columns, with writes, deletes, compactions, changes of the schema, tags,
branches, rollbacks, expiries, forgotten keys, commits of clients that write no metadata, and crashes between a snapshot and its
metadata. The readers are pyiceberg, Polars where its own reader takes the types, DuckDB where its extension is installed, and
Iceberg's own Java library where Maven can fetch it; iceberg-spark if it is named. A seed makes the same history for any readers.
"""

import argparse
import datetime as dt
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import polars
import pyarrow as pa

import lsm_engine as lsm
from lsm_engine.base.errors import UnsupportedError
from lsm_engine.table import iceberg
from tests.engines.iceberg_filters import random_filter
from tests.engines.iceberg_readers import (
    duckdb_reads_iceberg,
    duckdb_rows,
    face,
    in_order,
    metadata_file,
    metadata_folder,
)
from tests.interop import iceberg_java
from tests.interop.iceberg_java import IcebergJava
from tests.interop.iceberg_spark import IcebergSpark, iceberg_spark

STORAGE = "metadata.iceberg.storage"
IN_TABLE = {STORAGE: "table-location"}
EXACT = {"iceberg-compatibility.enabled": "true"}
NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 123456)  # noqa: DTZ001
STEPS = 14

LAYOUTS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "append": ((), EXACT),
    "append with vectors": ((), EXACT | {"deletion-vectors.enabled": "true"}),
    "append in a warehouse": ((), EXACT | {STORAGE: "hadoop-catalog"}),
    "keys": (("k",), EXACT),
    "wide vectors": (("k",), EXACT | {"deletion-vectors.bitmap64": "true", "bucket": "2"}),
    "keys in a warehouse": (("k",), EXACT | {STORAGE: "hadoop-catalog"}),
    "keys in version 2": (("k",), EXACT | {"metadata.iceberg.format-version": "2"}),
    "append in version 2": ((), EXACT | {"deletion-vectors.enabled": "true", "metadata.iceberg.format-version": "2"}),
    "keys by compactions": (("k",), IN_TABLE),
    "bounded lag": (("k",), IN_TABLE | {"metadata.iceberg.max-lag": "2"}),
    "partitions": (("k", "p"), EXACT),
    "dynamic buckets": (("k", "p"), EXACT | {"bucket": "-1", "dynamic-bucket.target-row-num": "5"}),
    "postponed buckets": (("k",), EXACT | {"bucket": "-2"}),
    "lookup changelog": (("k",), EXACT | {"changelog-producer": "lookup"}),
    "aggregation": (("k",), EXACT | {
        "merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "fields.v.ignore-retract": "true",
        "fields.default-aggregate-function": "last_non_null_value",
    }),
    "partial update": (("k",), EXACT | {"merge-engine": "partial-update"}),
    "first row": (("k",), EXACT | {"merge-engine": "first-row"}),
}  # fmt: skip
_TAKES_DELETES = ("append with vectors", "append in version 2", "keys", "keys in version 2", "wide vectors", "keys in a warehouse", "partitions",
                  "dynamic buckets", "postponed buckets", "lookup changelog", "keys by compactions", "bounded lag")  # fmt: skip
_INEXACT = ("keys by compactions", "bounded lag")
IN_PROCESS = ("pyiceberg", "polars", "duckdb")
READERS = (*IN_PROCESS, "java", "spark")

VALUES: dict[str, Callable[[int], Any]] = {
    "BOOLEAN": lambda n: n % 3 == 0,
    "TINYINT": lambda n: n % 100 - 50,
    "SMALLINT": lambda n: n * 7 - 900,
    "INT": lambda n: n * 1000 - 70_000,
    "BIGINT": lambda n: n << 33,
    "FLOAT": lambda n: float("nan") if n % 11 == 5 else n / 4,
    "DOUBLE": lambda n: float("inf") if n % 13 == 7 else -0.0 if n % 17 == 3 else -n / 8,
    "DECIMAL(5, 2)": lambda n: Decimal(n % 900) / 100,
    "DECIMAL(38, 10)": lambda n: Decimal(n) * Decimal("-1000000000000000000.0000000001"),
    "STRING": lambda n: f"{chr(97 + n % 26)}ü{n}" * (n % 20),
    "VARCHAR(40)": lambda n: f"{n:>10}",
    "BYTES": lambda n: bytes([n % 256, 255]),
    "DATE": lambda n: dt.date(1970, 1, 1) + dt.timedelta(days=n - 60),
    "TIMESTAMP(3)": lambda n: NOON.replace(microsecond=1000) + dt.timedelta(seconds=n),
    "TIMESTAMP(6)": lambda n: NOON - dt.timedelta(microseconds=n),
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": lambda n: NOON.replace(tzinfo=dt.UTC) + dt.timedelta(hours=n),
    "ARRAY<INT>": lambda n: [n, None, n + 1][: n % 4],
    "MAP<STRING, BIGINT>": lambda n: [("a", n), ("b", None)][: n % 3],
    "ROW<x INT, y ARRAY<STRING>>": lambda n: {"x": n, "y": ["p", None]},
}  # fmt: skip
_WIDER = {"INT": "BIGINT", "FLOAT": "DOUBLE", "DECIMAL(5, 2)": "DECIMAL(9, 2)", "TINYINT": "INT"}
_FITTING = {"INT": "BIGINT", "FLOAT": "DOUBLE", "TINYINT": "INT"}
"""Whose values a widened column takes from then on; a decimal goes on with those of before."""
_FILTERED = tuple(kind for kind in VALUES if "<" not in kind)


class Mismatch(AssertionError):
    """Other engines read other rows than a scan."""


class History:
    """One table and what happens to it. `columns`: the types of its columns but keys and `v`, by name.

    `readers`: those of this process that read it. `java` and `spark`: read it as well.
    """

    def __init__(
        self,
        folder: Path,
        layout: str,
        seed: int,
        *,
        readers: Collection[str] = IN_PROCESS,
        java: IcebergJava | None = None,
        spark: IcebergSpark | None = None,
    ) -> None:
        self.readers = readers
        self.java = java
        self.spark = spark
        self.layout = layout
        self.questions = random.Random(f"questions {layout} {seed}")
        self.chance = random.Random(f"{layout} {seed}")
        self.log: list[str] = []
        self.key, options = LAYOUTS[layout]
        self.columns = {f"c{i}": self._kind() for i in range(self.chance.randint(1, 4))}
        is_partitioned = len(self.key) == 2 or (not self.key and self.chance.random() < 0.5)
        self.catalog = lsm.open_catalog(str(folder))
        declared = {"k": "BIGINT", "p": "STRING", "v": "BIGINT", **self.columns}
        trigger = {"num-sorted-run.compaction-trigger": str(self.chance.randint(2, 4))}
        self.table = self.catalog.create_table(
            "shop.orders",
            declared,
            self.key,
            partitioned_by="p" if is_partitioned else None,
            options=options | trigger,
        )
        self.steps = 0
        self.is_blocked = False
        self.is_widened = False
        self.number = len(declared)

    def _kind(self) -> str:
        return self.chance.choice(list(VALUES))

    # Steps.

    def step(self) -> None:
        """Do something, and compare what is read then."""
        self.steps += 1
        acts: list[Callable[[], None]] = [
            self.write, self.write, self.write, self.write, self.delete, self.compact, self.alter, self.alter,
            self.tag, self.branch, self.branch, self.roll_back, self.expire, self.reopen, self.crash, self.crash,
            self.forget, self.write_elsewhere, self.rebuild,
        ]  # fmt: skip
        act = self.write if self.table.latest_snapshot() is None else self.chance.choice(acts)
        self.log.append(act.__name__)
        act()
        self.compare()

    def rows(self) -> pa.Table:
        """Return rows of random keys, some values null."""
        base = self.steps * 20
        return pa.Table.from_pylist(
            [
                {"k": key, "p": "ab"[key % 2], "v": base + key}
                | {name: self._value(kind, base + key) for name, kind in self.columns.items()}
                for key in self.chance.sample(range(24), self.chance.randint(1, 10))
            ],
            self.table.schema.arrow,
        )

    def _value(self, kind: str, number: int) -> Any:
        return None if self.chance.random() < 0.15 else VALUES[kind](number)

    def write(self, target: lsm.Table | None = None) -> None:
        target = target or self.table
        (target.upsert if self.key else target.append)(self.rows())

    def delete(self) -> None:
        if self.layout not in _TAKES_DELETES:
            return
        if self.key:
            self.table.delete(self.rows().select(self.key))
        else:
            self.table.delete(where=f"k < {self.chance.randint(0, 8)}")

    def compact(self) -> None:
        is_full = self.chance.random() < 0.6
        self.table.compact(full=is_full)
        self.is_blocked = self.is_blocked and not is_full

    def alter(self) -> None:
        names = list(self.columns)
        name = self.chance.choice(names)
        act = self.chance.choice(["add", "rename", "drop", "widen", "move", "retype"])
        self.log[-1] += f" {act} {name} {self.columns[name]}"
        if act == "add":
            self.number += 1
            # The name of a column of before may come again.
            new_name = self.chance.choice(
                [f"c{self.number}", f"c{self.chance.randint(0, self.number)}"]
            )
            if new_name not in names:
                self.columns[new_name] = self._kind()
                self.table.alter(lsm.AddColumn(new_name, self.columns[new_name]))
        elif act == "rename":
            self.number += 1
            self.table.alter(lsm.RenameColumn(name, f"c{self.number}"))
            self.columns[f"c{self.number}"] = self.columns.pop(name)
        elif act == "drop" and len(names) > 1:
            self.table.alter(lsm.DropColumn(name))
            del self.columns[name]
        elif act == "widen" and self.columns[name] in _WIDER:
            self.table.alter(lsm.ChangeType(name, _WIDER[self.columns[name]]))
            self.columns[name] = _FITTING.get(self.columns[name], self.columns[name])
            self.is_widened = True
        elif act == "move":
            self.table.alter(lsm.MoveColumn(name, after="v"))
        elif act == "retype" and self.columns[name] == "INT" and self.layout != "aggregation":
            # No type that Iceberg reads an int as: files wait for a full compaction.
            self.table.alter(lsm.ChangeType(name, "STRING"))
            self.columns[name] = "STRING"
            self.is_blocked = True
        self.table = self.catalog.table("shop.orders")

    def tag(self) -> None:
        tags = self.table.tags.list()
        if tags and self.chance.random() < 0.3:
            self.table.tags.delete(self.chance.choice(tags).name)
        else:
            self.table.tags.create(f"t{self.steps}")

    def branch(self) -> None:
        names = self.table.branches.names()
        act = self.chance.choice(["create", "write", "write", "write", "delete", "rename"])
        self.log[-1] += f" {act}"
        if act == "create" or not names:
            self.table.tags.create(f"of-b{self.steps}")
            self.table.branches.create(f"b{self.steps}", tag=f"of-b{self.steps}")
        elif act == "write":
            branch = self.table.branch(self.chance.choice(names))
            if branch.schema.arrow == self.table.schema.arrow:
                self.write(branch)
        elif act == "delete":
            self.table.branches.delete(self.chance.choice(names))
        else:
            self.table.branches.rename(self.chance.choice(names), f"b{self.steps}")

    def roll_back(self) -> None:
        target = self.chance.choice(self.table.snapshots())
        self.log[-1] += f" {target.id}"
        self.table.rollback_to(target.id)
        if target.schema_id != self.table.schema.id:
            self.is_blocked = self.is_blocked or "STRING" in self.columns.values()

    def expire(self) -> None:
        self.table.expire_snapshots(retain_min=1, retain_max=3, older_than="0 s")

    def reopen(self) -> None:
        iceberg._decoded.clear()
        self.table = self.catalog.table("shop.orders")

    def crash(self) -> None:
        """Commit, and die while the metadata is written; a later commit catches up."""
        method = self.chance.choice(["write", "publish", "_name"])
        self.log[-1] += f" at {method}"
        with dying(method, self.chance.randint(1, 3)):
            self.write()
        if self.chance.random() < 0.5:
            self.sync()
        else:
            self.write()

    def sync(self) -> None:
        """Bring the metadata up; a file whose types Iceberg misreads may block it."""
        with suppress(*(UnsupportedError,) if self.is_blocked else ()):
            self.table.maintenance.sync_iceberg()

    def write_elsewhere(self) -> None:
        """Commit as a client that knows no Iceberg metadata, then bring it up."""
        with mock.patch.object(iceberg, "follow"):
            for _ in range(self.chance.randint(1, 3)):
                self.write()
        self.sync()

    def rebuild(self) -> None:
        if not self.is_blocked:
            self.table.maintenance.sync_iceberg(rebuild=True)

    def forget(self) -> None:
        """Forget a key, which the metadata has to be given up for."""
        if not self.key or self.layout in ("first row", "aggregation", "partial update"):
            return
        texts = {
            name: self.table.schema.options.texts.get(name)
            for name in ("iceberg-compatibility.enabled", STORAGE)
        }
        gone = [lsm.SetOption(STORAGE, "disabled")]
        if texts["iceberg-compatibility.enabled"]:
            gone.append(lsm.RemoveOption("iceberg-compatibility.enabled"))
        self.table.alter(*gone)
        self.table = self.catalog.table("shop.orders")
        row = self.table.to_arrow().select(self.key).slice(0, 1).to_pylist()
        if row:
            self.table.maintenance.forget(
                row, dry_run=False, rewrite_tags=True, rewrite_branches=True
            )
        self.table.alter(*(lsm.SetOption(name, text) for name, text in texts.items() if text))
        self.table = self.catalog.table("shop.orders")

    # What is read.

    def compare(self) -> None:
        """Raise Mismatch where another engine reads other rows than a scan."""
        state = self.table.inspect.iceberg()
        if self.is_blocked and state.problem is not None:
            return
        self.is_blocked = False
        if state.problem is not None:
            raise Mismatch(f"blocked: {state.problem}")
        if state.lag:
            raise Mismatch(f"{state.lag} snapshots behind")
        if self.layout == "bounded lag" and state.waiting_commits > 2 and self.log[-1] == "compact":
            raise Mismatch(f"{state.waiting_commits} commits wait")
        members = json.loads(Path(metadata_file(self.table)).read_bytes())
        rows = self._rows_of_each()
        _require_agreement(rows)
        if self.layout in _INEXACT and state.hidden_files:
            return
        scanned = self.table.to_arrow()
        for reader, each in rows.items():
            self._require_same(reader, each, scanned)
        self._compare_filters(scanned)
        self._compare_older(members, state)
        self._compare_branches(members, state)
        # It compares what readers skip rows by, and costs as much as the readers.
        warnings = self.table.verify().warnings if self.steps % 4 == 0 else ()
        if warnings:
            raise Mismatch(f"verify warns: {warnings[0]}")

    def _rows_of_each(self) -> dict[str, list[str]]:
        """Return the rows of the newest snapshot, in order, by reader."""
        tables = {}
        if "pyiceberg" in self.readers:
            tables["pyiceberg"] = face(self.table).scan().to_arrow()
        # Its own reader refuses TIMESTAMP(3) and decimals with more digits than in the file, and gives maps as lists.
        if "polars" in self.readers and not (
            self.is_widened
            or any(kind.startswith(("TIMESTAMP(3)", "MAP")) for kind in self.columns.values())
        ):
            tables["polars"] = polars.scan_iceberg(metadata_file(self.table)).collect().to_arrow()
        if "duckdb" in self.readers and duckdb_reads_iceberg():
            tables["DuckDB"] = duckdb_rows(self.table)
        if self.java is not None:
            tables["Iceberg's library"] = self.java.rows(self._directory())
        if self.spark is not None:
            tables["Spark"] = self.spark.rows(self._directory())
        return {reader: self._ordered(rows) for reader, rows in tables.items()}

    def _directory(self) -> str:
        return str(metadata_folder(self.table).parent)

    def _ordered(self, rows: pa.Table) -> list[str]:
        columns = self.table.schema.arrow
        return in_order(rows.select(columns.names).cast(columns))

    def _require_same(self, reader: str, rows: list[str], scanned: pa.Table) -> None:
        expected = in_order(scanned)
        if rows != expected:
            raise Mismatch(f"{reader}: {_difference(rows, expected)}")

    def _compare_filters(self, scanned: pa.Table) -> None:
        """Ask Iceberg's library for a filter of each type, and the others for one of them."""
        kinds = {"k": "BIGINT", "v": "BIGINT", **self.columns}
        names = [name for name, kind in kinds.items() if kind in _FILTERED]
        self.questions.shuffle(names)
        by_kind = {kinds[name]: name for name in names}
        filters = [
            random_filter(self.questions, scanned, name, kind) for kind, name in by_kind.items()
        ]
        answers = []
        if self.java is not None:
            requests = [{"row_filter": each.members()} for each in filters]
            tables = self.java.answers(self._directory(), requests)
            answers += [("Iceberg's library", *pair) for pair in zip(filters, tables, strict=True)]
        first = filters[0]
        if "pyiceberg" in self.readers:
            scan = face(self.table).scan(row_filter=first.expression())
            answers.append(("pyiceberg", first, scan.to_arrow()))
        if self.spark is not None:
            rows = self.spark.rows(self._directory(), condition=first.sql())
            answers.append(("Spark", first, rows))
        for reader, each, rows in answers:
            self._require_same(
                f"{reader} where {each}", self._ordered(each.comparable(rows)), each.kept(scanned)
            )

    def _compare_older(self, members: dict[str, Any], state: Any) -> None:
        """Require that each tag is a ref, and that readers of an older snapshot read what a scan of it reads."""
        tagged = {tag.name: tag.snapshot.id for tag in self.table.tags.list()}
        refs = {name for name, ref in members["refs"].items() if ref["type"] == "tag"}
        if refs | set(state.tags_left_out) != set(tagged):
            raise Mismatch(f"tags {sorted(tagged)}, refs {sorted(refs)}, {state.tags_left_out}")
        if self.layout in _INEXACT:
            return
        scans = {snapshot.id: {"snapshot_id": snapshot.id} for snapshot in self.table.snapshots()}
        scans |= {number: {"tag": name} for name, number in tagged.items()}
        ids = [number for number in _snapshot_ids(members) if number in scans]
        number = self.chance.choice(ids)
        scanned = self.table.scan(**scans[number]).to_arrow()
        answers = {}
        if "pyiceberg" in self.readers:
            answers["pyiceberg"] = face(self.table).scan(snapshot_id=number).to_arrow()
        if self.java is not None:
            # A tag by its name, in which readers look it up.
            names = [name for name in refs if tagged[name] == number]
            by_name = {"ref": names[0]} if names else {"snapshot": number}
            answers["Iceberg's library"] = self.java.rows(self._directory(), **by_name)
        if self.spark is not None:
            answers["Spark"] = self.spark.rows(self._directory(), snapshot=number)
        for reader, rows in answers.items():
            rows = rows.select(scanned.column_names).cast(scanned.schema)
            self._require_same(f"{reader} at {number}", in_order(rows), scanned)

    def _compare_branches(self, members: dict[str, Any], state: Any) -> None:
        ids = _snapshot_ids(members)
        if len(ids) > len(set(ids)):
            raise Mismatch(f"ids of snapshots are not unique: {sorted(ids)}")
        for name in self.table.branches.names():
            if name in state.branches_left_out:
                continue
            branch = self.table.branch(name)
            if branch.latest_snapshot() is None or self.layout in _INEXACT:
                continue
            ref = members["refs"].get(name)
            if ref is None or ref["snapshot-id"] not in ids:
                raise Mismatch(f"branch {name} is neither shown nor left out")
            scanned = branch.to_arrow()
            answers = {}
            if "pyiceberg" in self.readers:
                scan = face(self.table).scan(snapshot_id=ref["snapshot-id"])
                answers["pyiceberg"] = scan.to_arrow()
            if self.java is not None:
                answers["Iceberg's library"] = self.java.rows(self._directory(), ref=name)
            for reader, rows in answers.items():
                rows = rows.select(scanned.column_names).cast(scanned.schema)
                self._require_same(f"{reader} of branch {name}", in_order(rows), scanned)

    def finish(self) -> None:
        """Compare what is read after a full compaction, which leaves nothing out."""
        self.log.append("finish")
        self.table.compact(full=True)
        self.table.maintenance.sync_iceberg()
        self.is_blocked = False
        self.compare()
        if self.table.inspect.iceberg().hidden_files:
            raise Mismatch("files are hidden after a full compaction")


def _snapshot_ids(members: dict[str, Any]) -> list[int]:
    return [snapshot["snapshot-id"] for snapshot in members["snapshots"]]


def _require_agreement(rows: dict[str, list[str]]) -> None:
    """Require that all readers read the same rows, also where they are not those of a scan."""
    for (first, expected), (reader, each) in pairwise(rows.items()):
        if each != expected:
            raise Mismatch(f"{reader} and {first}: {_difference(each, expected)}")


def _difference(rows: list[str], expected: list[str]) -> str:
    missing, more = set(expected) - set(rows), set(rows) - set(expected)
    return f"lacks {sorted(missing)[:2]}, has {sorted(more)[:2]}, {len(rows)} rows"


@contextmanager
def dying(method: str, call: int) -> Iterator[None]:
    """Have a method of the store fail at its n-th call, and all of its calls after that."""
    original = getattr(iceberg.IcebergStore, method)
    calls = 0

    def failing(*given: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls >= call:
            raise OSError(28, "No space left on device")
        return original(*given, **more)

    with mock.patch.object(iceberg.IcebergStore, method, failing):
        yield


def run_history(
    folder: Path,
    layout: str,
    seed: int,
    steps: int = STEPS,
    **readers: Any,
) -> History:
    """Run a history to its end; Mismatch names layout, seed and steps.

    `readers`: `readers`, `java` and `spark`, as a History takes them.
    """
    history = History(folder, layout, seed, **readers)
    try:
        for _ in range(steps):
            history.step()
        history.finish()
    except Exception as error:
        error.add_note(f"layout {layout!r}, seed {seed}: {'; '.join(history.log)}")
        raise
    finally:
        history.catalog.close()
    return history


def main() -> int:
    """Run histories; print the failures and what was covered."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--histories", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first history")
    parser.add_argument("--layout", choices=LAYOUTS)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no history after them"
    )
    parser.add_argument("--folder", help="where tables are made, such as /dev/shm")
    parser.add_argument(
        "--readers",
        default=",".join((*IN_PROCESS, "java")),
        help=f"some of {','.join(READERS)}, separated by commas",
    )
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    names = given.readers.split(",")
    if not names or not set(names) <= set(READERS):
        parser.error(f"--readers takes some of {','.join(READERS)}")
    readers: dict[str, Any] = {"readers": [name for name in names if name in IN_PROCESS]}
    with ExitStack() as stack:
        reason = iceberg_java.why_not() if "java" in names else None
        if reason is not None:
            print(f"without Iceberg's library: {reason}")
        elif "java" in names:
            readers["java"] = stack.enter_context(iceberg_java.iceberg_java())
        if "spark" in names:
            readers["spark"] = stack.enter_context(iceberg_spark())
        return run_histories(given, readers)


def run_histories(given: argparse.Namespace, readers: dict[str, Any]) -> int:
    """Run histories; print the failures and what was covered, and return the status of the command."""
    acts: Counter[str] = Counter()
    failures, begun, count = 0, time.monotonic(), 0
    layouts = [given.layout] if given.layout else list(LAYOUTS)
    for number in range(given.seed, given.seed + given.histories):
        if time.monotonic() - begun > given.seconds:
            break
        count += 1
        if count % 100 == 0:
            print(f"{count} histories begun, {failures} failures", flush=True)
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            try:
                history = run_history(
                    Path(folder), layouts[number % len(layouts)], number, **readers
                )
                acts.update(text.partition(" ")[0] for text in history.log)
            except Exception as error:
                failures += 1
                print(
                    f"{type(error).__name__}: {error}\n  {'; '.join(error.__notes__)}", flush=True
                )
                if given.verbose:
                    raise
    print(
        f"{count} histories, {sum(acts.values())} steps, {failures} failures in {time.monotonic() - begun:.0f} s"
    )
    print(", ".join(f"{name} {number}" for name, number in sorted(acts.items())))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
