"""Any operations on any table, with reads equal to the model after every step.

A state machine for Hypothesis; test_table_machine.py runs it over memory and over a local disk.
"""

from collections import Counter
from collections.abc import Callable
from functools import wraps
from itertools import combinations
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition
from hypothesis.stateful import rule as uncounted_rule

from lsm_engine.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    ExpiredError,
    NotFoundError,
)
from lsm_engine.storage.file_io import FileIO
from tests.model.column_kinds import to_arrow, to_rows
from tests.model.strategies import (
    DEFAULT,
    DOMAINS,
    Layout,
    Pick,
    arrow_keys,
    bulk_rows,
    features,
    fitted,
    key_pool,
    layouts,
    picked_rows,
    picks,
    row_of,
    seeds,
    shapes_of_engines,
)
from tests.model.table_model import DELETE, Key, Row, Shape
from tests.model.world import World, by_key, read, reopen

TAG_NAMES = ("daily", "2024-01-01", "v7", "v1.0 \u00fc")
EXPIRE_LIMIT = 50  # snapshot.expire.limit: so many go at a time
numbers = st.integers(0, 200)


Feature = tuple[str, str]
Pair = tuple[Feature, Feature]


def rule(**given: Any) -> Callable[[Callable[..., None]], Any]:
    """A rule of which is counted how often it ran."""

    def counting(act: Callable[..., None]) -> Any:
        @wraps(act)
        def counted(self: "TableMachine", **drawn: Any) -> None:
            self.rules_run[act.__name__] += 1
            act(self, **drawn)

        return uncounted_rule(**given)(counted)

    return counting


class TableMachine(RuleBasedStateMachine):
    """One table, one history."""

    rules_run: ClassVar[Counter[str]] = Counter()
    pairs_met: ClassVar[set[Pair]] = set()
    """Features that were together in one table; for a count over many histories."""

    def __init__(self) -> None:
        super().__init__()
        self.world: World

    def storage(self) -> FileIO:
        """Where this history's table lies."""
        raise NotImplementedError

    @initialize(shape=shapes_of_engines(), layout=layouts(), many=st.booleans())
    def open(self, shape: Shape, layout: Layout, many: bool) -> None:
        self.pool = key_pool(shape, many=many)
        self.world = World(shape, fitted(layout, shape), self.storage())
        given = features(self.world.layout, shape)
        whole = [(name, given.get(name, DEFAULT)) for name in sorted(DOMAINS)]
        TableMachine.pairs_met.update(combinations(whole, 2))

    # Writing.

    @rule(chosen=picks)
    def upsert(self, chosen: list[Pick]) -> None:
        self.world.upsert(picked_rows(self.world.shape, self.pool, chosen))

    @rule(first=numbers, count=st.integers(20, 150), seed=seeds)
    def upsert_many(self, first: int, count: int, seed: int) -> None:
        self.world.upsert(bulk_rows(self.world.shape, self.pool, first, count, seed))

    @rule(chosen=st.lists(st.integers(0, 11), min_size=1, max_size=6))
    def delete(self, chosen: list[int]) -> None:
        self.world.delete([self.pool[number % len(self.pool)] for number in [*chosen, chosen[0]]])

    @rule(first=numbers, count=st.integers(10, 200))
    def delete_many(self, first: int, count: int) -> None:
        start = first % len(self.pool)
        keys = (self.pool[start:] + self.pool[:start])[:count]
        self.world.delete([*keys, keys[0]])

    @rule(chosen=picks)
    def overwrite(self, chosen: list[Pick]) -> None:
        self.world.overwrite(picked_rows(self.world.shape, self.pool, chosen), None)

    @precondition(lambda self: self.world.shape.partitioned_by)
    @rule(chosen=picks, number=st.integers(0, 11), columns=st.integers(1, 2), empty=st.booleans())
    def overwrite_partition(
        self, chosen: list[Pick], number: int, columns: int, empty: bool
    ) -> None:
        shape = self.world.shape
        values = shape.partition_of_key(self.pool[number % len(self.pool)])
        names = shape.partitioned_by[:columns]
        chosen_partition = dict(zip(names, values, strict=False))
        rows = [
            (kind, row)
            for kind, row in picked_rows(shape, self.pool, chosen)
            if shape.part(row, names) == values[: len(names)] and not empty
        ]
        self.world.overwrite(rows, chosen_partition)

    @rule(chosen=picks)
    def nothing_at_all(self, chosen: list[Pick]) -> None:
        assert self.world.table.upsert(self.empty_rows()) is None
        if DELETE not in self.world.shape.merge.refused:
            assert self.world.table.delete(self.empty_rows()) is None

    def empty_rows(self) -> pa.Table:
        return self.world.table.schema.arrow.empty_table()

    # Compacting.

    @rule()
    def compact(self) -> None:
        self.world.compact()

    @rule()
    def compact_fully(self) -> None:
        self.world.compact(full=True)
        # Once is enough: a fully compacted table has nothing left to do.
        assert self.world.table.compact(full=True) is None

    @rule(bucket=st.integers(0, 6), full=st.booleans())
    def compact_one_bucket(self, bucket: int, full: bool) -> None:
        self.world.compact(full=full, buckets=[bucket % max(1, self.world.layout.bucket)])

    @precondition(lambda self: self.world.shape.partitioned_by)
    @rule(number=st.integers(0, 11), full=st.booleans())
    def compact_one_partition(self, number: int, full: bool) -> None:
        shape = self.world.shape
        values = shape.partition_of_key(self.pool[number % len(self.pool)])
        spec = self.world.partition_spec(dict(zip(shape.partitioned_by, values, strict=True)))
        self.world.compact(full=full, partitions=[spec])

    @rule(first=numbers, seed=seeds, more=st.integers(-1, 0), data=st.data())
    def delete_above_a_deep_level(
        self, first: int, seed: int, more: int, data: st.DataObject
    ) -> None:
        """Deletes in small new runs over a large old one: a compaction of the new alone keeps them."""
        world = self.world
        world.upsert(bulk_rows(world.shape, self.pool, first, len(self.pool), seed))
        world.settle()
        world.compact(full=True)
        world.settle()
        trigger = int(dict(world.layout.options)["num-sorted-run.compaction-trigger"])
        for _ in range(trigger + more):
            chosen = data.draw(st.lists(st.integers(0, 11), min_size=1, max_size=2))
            deleted = [self.pool[(first + number) % len(self.pool)] for number in chosen]
            world.delete([*deleted, deleted[0]])
            world.settle()
        world.compact()

    # Tags, time, retention.

    @precondition(lambda self: self.world.model.snapshots)
    @rule(name=st.sampled_from(TAG_NAMES), number=numbers)
    def create_tag(self, name: str, number: int) -> None:
        ids = sorted(self.world.model.snapshots)
        chosen = ids[number % len(ids)]
        if name in self.world.model.tags:
            with pytest.raises(AlreadyExistsError):
                self.world.create_tag(name, chosen)
        else:
            self.world.create_tag(name, chosen)

    @rule(name=st.sampled_from(TAG_NAMES))
    def delete_tag(self, name: str) -> None:
        if name in self.world.model.tags:
            self.world.delete_tag(name)
        else:
            with pytest.raises(NotFoundError):
                self.world.table.delete_tag(name)

    @rule(millis=st.integers(-1_000, 10_000))
    def let_time_pass(self, millis: int) -> None:
        self.world.clock.advance(millis)

    @precondition(lambda self: self.world.model.snapshots)
    @rule(
        keep_min=st.integers(1, 4),
        more=st.integers(0, 4),
        age=st.sampled_from([0, 1_000, 5_000, 3_600_000]),
    )
    def expire(self, keep_min: int, more: int, age: int) -> None:
        world = self.world
        retention = {
            "retain_min": keep_min,
            "retain_max": keep_min + more,
            "older_than": f"{age} ms",
        }
        expected = world.model.to_expire(
            world.clock.now_millis(),
            keep_min=keep_min,
            keep_max=keep_min + more,
            keep_millis=age,
            limit=EXPIRE_LIMIT,
        )
        before = world.stored.files()
        world.table.expire_snapshots(dry_run=True, **retention)
        assert world.stored.files() == before, "a dry run changed something"
        world.table.expire_snapshots(**retention)
        world.model.expire(expected)

    @precondition(lambda self: self.world.model.snapshots)
    @rule(name=st.sampled_from(TAG_NAMES), keeps=st.integers(1, 2), chosen=picks)
    def outlive_a_snapshot(self, name: str, keeps: int, chosen: list[Pick]) -> None:
        """A tag on the oldest snapshot, whose files go, but for the tag, when it expires."""
        world = self.world
        if name not in world.model.tags:
            world.create_tag(name, min(world.model.snapshots))
        world.overwrite(picked_rows(world.shape, self.pool, chosen), None)
        world.settle()
        world.compact(full=True)
        world.settle()
        world.clock.advance(10)
        world.table.expire_snapshots(retain_min=keeps, retain_max=keeps, older_than="1 ms")
        last = max(world.model.snapshots)
        over = sorted(one for one in world.model.snapshots if one <= last - keeps)
        world.model.expire(over[:EXPIRE_LIMIT])  # of a long history the rest goes the next time

    # Reading.

    @precondition(lambda self: self.world.model.snapshots)
    @rule(number=numbers)
    def read_by_id(self, number: int) -> None:
        world = self.world
        ids = sorted(world.model.snapshots)
        chosen = ids[number % len(ids)]
        assert (
            read(world.table, world.shape, snapshot_id=chosen) == world.model.snapshots[chosen].rows
        )
        with pytest.raises(NotFoundError):
            read(world.table, world.shape, snapshot_id=ids[-1] + 1)
        if ids[0] > 1:
            with pytest.raises(ExpiredError):
                read(world.table, world.shape, snapshot_id=ids[0] - 1)

    @rule(name=st.sampled_from(TAG_NAMES))
    def read_tag(self, name: str) -> None:
        world = self.world
        if name in world.model.tags:
            assert read(world.table, world.shape, tag=name) == world.model.tags[name].rows
        else:
            with pytest.raises(NotFoundError):
                read(world.table, world.shape, tag=name)

    @precondition(lambda self: self.world.model.snapshots)
    @rule(number=numbers, offset=st.integers(-1, 1))
    def read_by_time(self, number: int, offset: int) -> None:
        world = self.world
        moments = [world.model.snapshots[one] for one in sorted(world.model.snapshots)]
        millis = moments[number % len(moments)].time_millis + offset
        expected = world.model.as_of(millis)
        if expected is not None:
            assert read(world.table, world.shape, as_of_millis=millis) == expected.rows

    @rule(chosen=st.integers(1, 2**8), limit=st.one_of(st.none(), st.integers(0, 30)))
    def read_some_columns(self, chosen: int, limit: int | None) -> None:
        world = self.world
        names = [name for place, name in enumerate(world.shape.names) if chosen >> place & 1]
        names = (names or list(world.shape.names))[:: -1 if chosen & 1 else 1]
        got = world.table.scan(columns=names, limit=limit).to_arrow()
        assert got.column_names == names
        whole = world.table.scan().to_arrow()
        if limit is None:
            assert rows_of(got) == rows_of(whole.select(names))
        else:
            assert got.num_rows == min(limit, whole.num_rows)
            assert not set(rows_of(got)) - set(rows_of(whole.select(names)))
        assert world.table.scan(limit=limit).count() == got.num_rows

    @rule(first=numbers, count=st.integers(1, 60))
    def look_keys_up(self, first: int, count: int) -> None:
        """Lookups and tags say what a scan says, however often they are asked for a key."""
        world = self.world
        start = first % len(self.pool)
        chosen = (self.pool[start:] + self.pool[:start])[:count]
        asked = [*chosen[::2], *chosen, *chosen[::-3]]
        keys = arrow_keys(world.shape, asked)
        whole = read(world.table, world.shape)
        found = world.table.lookup(keys)
        is_there = [key in whole for key in asked]
        assert found["_found"].to_pylist() == is_there
        hits = to_rows(found.filter(found["_found"]), world.shape.names)
        assert hits == [whole[key] for key in asked if key in whole]
        actions = world.table.locate(keys)["action"].to_pylist()
        assert actions == ["update" if there else "insert" for there in is_there]

    @rule(data=st.data())
    def read_filtered(self, data: st.DataObject) -> None:
        world = self.world
        where = data.draw(predicates(world.shape))
        whole = world.table.scan().to_arrow()
        expected = by_key(world.shape, whole.filter(where))
        assert read(world.table, world.shape, where=where) == expected
        assert world.table.scan(where=where).count() == len(expected)
        ids = sorted(world.model.snapshots)
        if ids:
            older = world.table.scan(snapshot_id=ids[0])
            assert read(world.table, world.shape, snapshot_id=ids[0], where=where) == by_key(
                world.shape, older.to_arrow().filter(where)
            )

    @rule(number=st.integers(0, 11), old=seeds, new=seeds)
    def look_for_a_replaced_value(self, number: int, old: int, new: int) -> None:
        """A filter on a value that has been replaced: no file may hide the newer row."""
        world = self.world
        key = self.pool[number % len(self.pool)]
        for seed in (old, new):
            world.upsert(picked_rows(world.shape, self.pool, [("+I", number, seed)]))
            world.settle()
        row = row_of(world.shape, key, old)
        whole = world.table.scan().to_arrow()
        for name, kind in world.shape.columns:
            (value,) = world.shape.part(row, [name])
            if name not in world.shape.primary_key and value is not None:
                where = pc.field(name) == to_arrow([value], kind.arrow)[0]
                assert read(world.table, world.shape, where=where) == by_key(
                    world.shape, whole.filter(where)
                )

    @rule()
    def look_at_system_tables(self) -> None:
        world = self.world
        snapshots = world.table.system("snapshots")
        assert snapshots.column("snapshot_id").to_pylist() == sorted(world.model.snapshots)
        assert sorted(world.table.system("tags").column("tag_name").to_pylist()) == sorted(
            world.model.tags
        )
        assert world.table.system("schemas").num_rows == 1
        options = world.table.system("options")
        told = dict(
            zip(options.column("key").to_pylist(), options.column("value").to_pylist(), strict=True)
        )
        assert world.layout.texts().items() <= told.items()
        stored = world.stored.snapshots()
        for number in list(stored)[-2:]:
            files = world.table.system("files", snapshot_id=number)
            live = world.stored.live(stored[number]).values()
            assert sorted(
                path.rpartition("/")[2] for path in files.column("file_path").to_pylist()
            ) == sorted(entry.name for entry in live)
            manifests = world.table.system("manifests", snapshot_id=number)
            lists = (stored[number]["baseManifestList"], stored[number]["deltaManifestList"])
            expected = [
                one["_FILE_NAME"] for name in lists for one in world.stored.manifest_list(name)
            ]
            assert sorted(manifests.column("file_name").to_pylist()) == sorted(expected)

    @rule()
    def verify(self) -> None:
        report = self.world.table.verify()
        assert not report.problems, report.problems
        self.world.table.pressure()
        str(self.world.table.scan().explain())

    # Other processes.

    @rule()
    def reopen(self) -> None:
        self.world.reopen()

    @rule(
        mine=picks, theirs=picks, what=st.sampled_from(["upsert", "compact", "full", "overwrite"])
    )
    def write_from_an_old_base(self, mine: list[Pick], theirs: list[Pick], what: str) -> None:
        world = self.world
        with world.intruder(lambda: self.intrude(what, theirs)):
            world.upsert(picked_rows(world.shape, self.pool, mine))

    @rule(
        full=st.booleans(),
        theirs=picks,
        what=st.sampled_from(["upsert", "compact", "full", "overwrite"]),
    )
    def compact_from_an_old_base(self, full: bool, theirs: list[Pick], what: str) -> None:
        world = self.world
        base = world.model.copied()
        with world.intruder(lambda: self.intrude(what, theirs)):
            try:
                world.compact(full=full)
            except CommitConflictError:
                appended = what == "upsert" and ("write-only", "true") in world.layout.options
                assert not appended, "an append alone does not stand in a compaction's way"
        is_plain = world.shape.engine == "deduplicate"
        if is_plain and what == "upsert" and world.model.arrivals > base.arrivals:
            world.model.compact_as_of(base, picked_rows(world.shape, self.pool, theirs))

    @rule(
        mine=picks, theirs=picks, what=st.sampled_from(["upsert", "compact", "full", "overwrite"])
    )
    def overwrite_from_an_old_base(self, mine: list[Pick], theirs: list[Pick], what: str) -> None:
        world = self.world
        with world.intruder(lambda: self.intrude(what, theirs)):
            world.overwrite(picked_rows(world.shape, self.pool, mine), None)

    def intrude(self, what: str, chosen: list[Pick]) -> None:
        """Another process commits; what it did is settled before ours goes on."""
        world = self.world
        ours, world.table = world.table, reopen(world.parts)
        rows: list[tuple[str, Row]] = picked_rows(world.shape, self.pool, chosen)
        match what:
            case "upsert":
                world.upsert(rows)
            case "overwrite":
                world.overwrite(rows, None)
            case _:
                world.compact(full=what == "full")
        world.settle()
        world.table = ours

    @invariant()
    def reads_like_the_model(self) -> None:
        self.world.settle()
        self.world.check()


def rows_of(table: pa.Table) -> list[str]:
    """Rows as sorted text: a multiset that compares, NaN included."""
    columns = [
        column.to_pylist() if not _needs_cast(column) else column.cast(pa.int64()).to_pylist()
        for column in table.columns
    ]
    return sorted(repr(row) for row in zip(*columns, strict=True))


def _needs_cast(column: pa.ChunkedArray) -> bool:
    return pa.types.is_timestamp(column.type)


@st.composite
def predicates(draw: st.DrawFn, shape: Shape) -> pc.Expression:
    """One to three conditions on any columns, values beyond what is stored and nulls included."""
    parts = draw(st.lists(comparisons(shape), min_size=1, max_size=3))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole & part if draw(st.booleans()) else whole | part
    return whole


@st.composite
def comparisons(draw: st.DrawFn, shape: Shape) -> pc.Expression:
    name, kind = draw(st.sampled_from(shape.columns))
    field = pc.field(name)
    values = (*kind.values, *kind.beyond)
    how = draw(st.sampled_from(["==", "<", "<=", ">", ">=", "!=", "in", "null", "valid"]))
    chosen = to_arrow([draw(st.sampled_from(values))], kind.arrow)[0]
    match how:
        case "==":
            return field == chosen
        case "<":
            return field < chosen
        case "<=":
            return field <= chosen
        case ">":
            return field > chosen
        case ">=":
            return field >= chosen
        case "!=":
            return field != chosen
        case "in":
            several = draw(st.lists(st.sampled_from(values), max_size=3))
            return field.isin(to_arrow(several, kind.arrow))
        case "null":
            return field.is_null()
        case _:
            return field.is_valid()


def keys_of(pool: list[Key], chosen: list[int]) -> list[Key]:
    """Keys by number."""
    return [pool[number % len(pool)] for number in chosen]
