"""The model beside the LSM tree: append tables, and keys that move from partition to partition.

The same idea as machine.py on a smaller scale: a table, a specification of a few lines, and both
compared after every step, old snapshots and tags included. test_other_tables.py runs it.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import lsm_engine as lsm
from lsm_engine.base.errors import CommitConflictError
from lsm_engine.ddl.create import create_table
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.fault.doubles import ManualClock
from tests.fault.recording_file_io import Call, RecordingFileIO
from tests.model.invariants import check_invariants
from tests.model.stored_table import StoredTable
from tests.model.world import START_MILLIS, components, reopen

COLUMNS = pa.schema([("k", pa.int64()), ("p", pa.string()), ("v", pa.int64()), ("w", pa.int64())])
Row = tuple[Any, ...]  # k, p, v, w
Write = tuple[str, Row]  # kind, row
partitions = st.sampled_from(["a", "b", "c", None])
numbers = st.integers(0, 9)
rows = st.lists(
    st.tuples(st.integers(0, 12), partitions, st.none() | numbers, st.none() | numbers),
    min_size=1,
    max_size=10,
)


def ordered(found: Iterable[Row]) -> list[Row]:
    """Rows in an order that nulls have a place in."""
    return sorted(found, key=repr)


class OtherTableMachine(RuleBasedStateMachine):
    """A table without one bucket per key, one history. `expected` says what a read may show."""

    def __init__(self) -> None:
        super().__init__()
        self.table: lsm.Table
        self.seen: dict[int, list[Row]] = {}
        self.tagged: dict[str, list[Row]] = {}
        self._intruder: Callable[[], None] | None = None

    def opened(self, options: dict[str, str], *, key: list[str], parted: bool) -> None:
        self.inner = MemoryFileIO()
        self.clock = ManualClock(START_MILLIS)
        self.parts = components(RecordingFileIO(self.inner, on_call=self._on_call), self.clock)
        create_table(
            self.parts.file_io,
            COLUMNS,
            primary_key=key,
            partitioned_by=["p"] if parted else [],
            options=options,
            comment=None,
            clock=self.clock,
        )
        self.table = reopen(self.parts)
        self.stored = StoredTable(self.inner)

    # What each kind of table says of itself.

    def write(self, given: list[Row]) -> None:
        """Write rows to the table and to the specification."""
        raise NotImplementedError

    def replace(self, given: list[Row]) -> None:
        """Replace the whole table."""
        raise NotImplementedError

    def expected(self) -> list[Row]:
        """What the table holds."""
        raise NotImplementedError

    # Steps that all of them take.

    @rule(given=rows)
    def write_rows(self, given: list[Row]) -> None:
        self.write(given)

    @rule(given=rows, count=st.integers(2, 5))
    def write_several_times(self, given: list[Row], count: int) -> None:
        for at in range(count):
            self.write(given[at:] or given)

    @rule(given=rows)
    def replace_all(self, given: list[Row]) -> None:
        self.replace(given)

    @rule(full=st.booleans())
    def compact(self, full: bool) -> None:
        self.table.compact(full=full)
        if full:
            assert self.table.compact(full=True) is None

    @rule()
    def reopen(self) -> None:
        self.table = reopen(self.parts)

    @rule(mine=rows, theirs=rows, what=st.sampled_from(["write", "replace", "compact", "full"]))
    def write_from_an_old_base(self, mine: list[Row], theirs: list[Row], what: str) -> None:
        self._intruder = lambda: self._intrude(what, theirs)
        self.write(mine)
        self._intruder = None

    @rule(theirs=rows, what=st.sampled_from(["write", "replace", "full"]), full=st.booleans())
    def compact_from_an_old_base(self, theirs: list[Row], what: str, full: bool) -> None:
        self._intruder = lambda: self._intrude(what, theirs)
        try:
            self.table.compact(full=full)
        except CommitConflictError:
            assert what != "write" or not self.is_write_only
        self._intruder = None

    @property
    def is_write_only(self) -> bool:
        return self.table.options.texts.get("write-only") == "true"

    @precondition(lambda self: self.seen)
    @rule(name=st.sampled_from(["v1", "daily"]), number=numbers)
    def tag(self, name: str, number: int) -> None:
        if name not in self.tagged:
            chosen = sorted(self.seen)[number % len(self.seen)]
            self.table.create_tag(name, chosen)
            self.tagged[name] = self.seen[chosen]
        else:
            self.table.delete_tag(name)
            del self.tagged[name]

    @precondition(lambda self: self.seen)
    @rule(keeps=st.integers(1, 4))
    def expire(self, keeps: int) -> None:
        self.clock.advance(10)
        self.table.expire_snapshots(retain_min=keeps, retain_max=keeps, older_than="1 ms")
        self.seen = {number: self.seen[number] for number in sorted(self.seen)[-keeps:]}

    @precondition(lambda self: self.seen)
    @rule(number=numbers)
    def go_back(self, number: int) -> None:
        chosen = sorted(self.seen)[number % len(self.seen)]
        if self.hides(chosen):
            return
        self.table.rollback_to_as_latest(chosen)
        self.went_back(self.seen[chosen])

    def went_back(self, found: list[Row]) -> None:
        """The table holds what it held."""
        raise NotImplementedError

    def hides(self, number: int) -> bool:
        """Whether a snapshot holds rows that are seen once they are compacted."""
        return False

    @rule(number=numbers, column=st.sampled_from(["k", "v"]), null=st.booleans())
    def read_filtered(self, number: int, column: str, null: bool) -> None:
        where = pc.field(column).is_null() if null else pc.field(column) >= number
        at = COLUMNS.names.index(column)
        wanted = [
            row
            for row in self.expected()
            if (row[at] is None if null else row[at] is not None and row[at] >= number)
        ]
        assert self.read(where=where) == ordered(wanted)
        assert self.table.scan(where=where).count() == len(wanted)

    @precondition(lambda self: self.seen)
    @rule(number=numbers)
    def read_by_id(self, number: int) -> None:
        chosen = sorted(self.seen)[number % len(self.seen)]
        assert self.read(snapshot_id=chosen) == self.seen[chosen]

    def read(self, **how: Any) -> list[Row]:
        """What a scan shows."""
        found = self.table.scan(**how).to_arrow().to_pylist()
        return ordered(tuple(row[name] for name in COLUMNS.names) for row in found)

    def _intrude(self, what: str, given: list[Row]) -> None:
        """Another process commits."""
        ours, self.table = self.table, reopen(self.parts)
        match what:
            case "write":
                self.write(given)
            case "replace":
                self.replace(given)
            case _:
                self.table.compact(full=what == "full")
        self.table = ours

    def _on_call(self, call: Call) -> None:
        if self._intruder is not None and call.verb == "publish":
            act, self._intruder = self._intruder, None
            act()

    @invariant()
    def reads_like_the_model(self) -> None:
        wanted = ordered(self.expected())
        assert self.read() == wanted
        assert self.table.scan().count() == len(wanted)
        made = [one.id for one in self.table.snapshots()]
        assert made[: len(self.seen)] == sorted(self.seen)
        # Of several snapshots of one step the last is what the step has led to.
        for number in made[len(self.seen) :]:
            self.seen[number] = wanted if number == made[-1] else self.read(snapshot_id=number)
        for name, found in self.tagged.items():
            assert self.read(tag=name) == found
        assert self.table.verify().is_clean
        check_invariants(self.stored)


class AppendMachine(OtherTableMachine):
    """Tables without a key: every row that comes is there, in the order in which it came."""

    @initialize(
        bucket=st.sampled_from(["-1", "-1", "1", "3"]),
        parted=st.booleans(),
        vectors=st.booleans(),
        few=st.sampled_from(["2", "5"]),
        extra=st.sampled_from([{}, {"write-only": "true"}, {"target-file-size": "1 kb"}]),
    )
    def open(
        self, bucket: str, parted: bool, vectors: bool, few: str, extra: dict[str, str]
    ) -> None:
        options = {"bucket": bucket, "compaction.min.file-num": few, **extra}
        if bucket != "-1":
            options["bucket-key"] = "k"
        if vectors:
            options["deletion-vectors.enabled"] = "true"
        self.options = options
        self.parted = parted
        self.rows: list[Row] = []
        self.opened(options, key=[], parted=parted)

    def write(self, given: list[Row]) -> None:
        self.table.append(arrow(given))
        self.rows += given

    def replace(self, given: list[Row]) -> None:
        """What comes replaces the partitions that it touches."""
        self.table.overwrite(arrow(given))
        touched = {row[1] for row in given}
        self.rows = [row for row in self.rows if self.parted and row[1] not in touched] + given

    def expected(self) -> list[Row]:
        return self.rows

    def went_back(self, found: list[Row]) -> None:
        self.rows = list(found)
        self.keeps_order = False

    keeps_order = True

    @precondition(lambda self: "deletion-vectors.enabled" in self.options)
    @rule(keys=st.lists(st.integers(0, 12), min_size=1, max_size=3), value=st.none() | numbers)
    def delete(self, keys: list[int], value: int | None) -> None:
        self._delete(keys, value)

    def _delete(self, keys: list[int], value: int | None) -> None:
        if value is None:
            self.table.delete([{"k": key} for key in keys])
            self.rows = [row for row in self.rows if row[0] not in keys]
        else:
            self.table.delete([{"k": key, "v": value} for key in keys])
            self.rows = [row for row in self.rows if row[0] not in keys or row[2] != value]

    @precondition(lambda self: "deletion-vectors.enabled" in self.options)
    @rule(keys=st.lists(st.integers(0, 12), min_size=1, max_size=3), theirs=rows)
    def delete_from_an_old_base(self, keys: list[int], theirs: list[Row]) -> None:
        """Rows that come while others are deleted may be taken for older ones, or for newer."""
        self._intruder = lambda: self.table.append(arrow(theirs)) and None
        self.table.delete([{"k": key} for key in keys])
        intruded, self._intruder = self._intruder is None, None
        self.rows = [row for row in self.rows if row[0] not in keys]
        if intruded:
            kept = [row for row in theirs if row[0] not in keys]
            left = Counter(self.read()) - Counter(self.rows)
            assert left in (Counter(theirs), Counter(kept)), (left, theirs, kept)
            self.rows += list(left.elements())
            self.keeps_order = False

    @rule()
    def rows_of_one_bucket_keep_their_order(self) -> None:
        if self.options["bucket"] != "1" or self.parted or not self.keeps_order:
            return
        found = self.table.scan().to_arrow().to_pylist()
        assert [tuple(row[name] for name in COLUMNS.names) for row in found] == self.rows

    @rule(given=rows)
    def rows_that_come_are_the_changes(self, given: list[Row]) -> None:
        before = self.table.latest_snapshot()
        self.write(given)
        told = self.table.changelog(0 if before is None else before.id).to_pylist()
        assert {change["_row_kind"] for change in told} == {"+I"}
        assert ordered(tuple(row[name] for name in COLUMNS.names) for row in told) == ordered(given)


class MovingKeysMachine(OtherTableMachine):
    """Keys without their partition: each is in one partition, which its engine chooses."""

    @initialize(
        engine=st.sampled_from(["deduplicate", "partial-update", "aggregation", "first-row"]),
        full_at=st.sampled_from(["2", "4", "2000000"]),
        trigger=st.sampled_from(["2", "3", "5"]),
        blooms=st.booleans(),
    )
    def open(self, engine: str, full_at: str, trigger: str, blooms: bool) -> None:
        self.engine = engine
        self.found: dict[int, Row] = {}
        options = {
            "bucket": "-1",
            "merge-engine": engine,
            "dynamic-bucket.target-row-num": full_at,
            "num-sorted-run.compaction-trigger": trigger,
            "dynamic-partition-overwrite": "false",
        }
        if engine == "aggregation":
            options["fields.v.aggregate-function"] = "sum"
            options["fields.w.aggregate-function"] = "max"
        if blooms:
            options["index.type"] = "global-bloom"
        self.opened(options, key=["k"], parted=True)

    def write(self, given: list[Row]) -> None:
        self._upsert([("+U", row) for row in given])

    def _upsert(self, given: list[Write]) -> None:
        self.table.upsert(arrow([row for _, row in given], [kind for kind, _ in given]))
        for kind, row in given:
            self._came(kind, row)

    def _came(self, kind: str, row: Row) -> None:
        key, _, v, w = row
        old = self.found.get(key)
        if kind in ("-D", "-U"):
            self.found.pop(key, None)
        elif old is None or self.engine == "deduplicate":
            self.found[key] = row
        elif self.engine == "partial-update":
            new = (old[2] if v is None else v, old[3] if w is None else w)
            self.found[key] = (key, old[1], *new)
        elif self.engine == "aggregation":
            sums = [x for x in (old[2], v) if x is not None]
            most = [x for x in (old[3], w) if x is not None]
            self.found[key] = (
                key, old[1], sum(sums) if sums else None, max(most, default=None),
            )  # fmt: skip

    def replace(self, given: list[Row]) -> None:
        self.table.overwrite(arrow(given))
        self.found = {}
        for row in given:
            self._came("+I", row)

    def expected(self) -> list[Row]:
        return list(self.found.values())

    def went_back(self, found: list[Row]) -> None:
        self.found = {row[0]: row for row in found}

    def hides(self, number: int) -> bool:
        (found,) = [one for one in self.table.snapshots() if one.id == number]
        files = self.table.session.live_entries(found)
        return self.engine == "first-row" and any(entry.file.level == 0 for entry in files)

    @precondition(lambda self: self.engine == "deduplicate")
    @rule(given=rows, kinds=st.lists(st.sampled_from(["+I", "-D", "-U"]), min_size=10, max_size=10))
    def write_of_all_kinds(self, given: list[Row], kinds: list[str]) -> None:
        self._upsert(list(zip(kinds, given, strict=False)))

    @precondition(lambda self: self.engine == "deduplicate")
    @rule(keys=st.lists(st.integers(0, 14), min_size=1, max_size=4))
    def delete(self, keys: list[int]) -> None:
        self.table.delete([{"k": key} for key in keys])
        for key in keys:
            self.found.pop(key, None)

    @rule(chosen=st.lists(st.integers(0, 14), min_size=1, max_size=6))
    def look_keys_up(self, chosen: list[int]) -> None:
        keys = [*chosen, *chosen[::-1]]
        found = self.table.lookup([{"k": key} for key in keys]).to_pylist()
        assert [row["_found"] for row in found] == [key in self.found for key in keys]
        for row in found:
            if row["_found"]:
                assert tuple(row[name] for name in COLUMNS.names) == self.found[row["k"]]


def arrow(given: list[Row], kinds: list[str] | None = None) -> pa.Table:
    """Rows as a writer hands them in."""
    columns = list(zip(*given, strict=True)) or [()] * len(COLUMNS)
    made = pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, COLUMNS, strict=True)],
        schema=COLUMNS,
    )
    if kinds is None:
        return made
    return made.append_column("_row_kind", pa.array(kinds, pa.string()))
