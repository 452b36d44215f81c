"""Keys that lack partition columns: one row per key in the whole table, whatever its partition."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lsm_engine as lsm
from lsm_engine.api.catalog import Catalog
from lsm_engine.write import buckets
from tests.foreign_documents import without_checksum
from tests.unit.table.history_tables import Story

COLUMNS = pa.schema([("k", pa.int64()), ("p", pa.string()), ("v", pa.int64()), ("w", pa.int64())])
Row = tuple[str, int, str | None, int | None, int | None]  # kind, k, p, v, w


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "lake")) as made:
        yield made


def created(catalog: Catalog, engine: str, name: str = "t", **options: str) -> lsm.Table:
    texts = {
        "bucket": "-1",
        "merge-engine": engine,
        "dynamic-bucket.target-row-num": "4",
        "num-sorted-run.compaction-trigger": "3",
    }
    if engine == "aggregation":
        texts |= {"fields.v.aggregate-function": "sum", "fields.w.aggregate-function": "max"}
    return catalog.create_table(
        f"db.{name}", COLUMNS, primary_key=["k"], partitioned_by=["p"], options=texts | options
    )


def rows(given: list[Row]) -> pa.Table:
    columns = list(zip(*given, strict=True)) if given else [[]] * 5
    made = pa.table([pa.array(column, field.type)
                     for column, field in zip(columns[1:], COLUMNS, strict=True)], schema=COLUMNS)  # fmt: skip
    return made.append_column("_row_kind", pa.array(columns[0], pa.string()))


def state(table: lsm.Table) -> dict[int, tuple[object, ...]]:
    read = table.scan().to_arrow().to_pylist()
    found = {row["k"]: (row["p"], row["v"], row["w"]) for row in read}
    assert len(found) == len(read), "a key is in two partitions"
    return found


class Model:
    """What each engine makes of rows, a row at a time."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.rows: dict[int, tuple[object, ...]] = {}

    def write(self, given: list[Row]) -> None:
        for kind, key, partition, v, w in given:
            old = self.rows.get(key)
            if self.engine == "deduplicate":
                if kind in ("-D", "-U"):
                    self.rows.pop(key, None)
                else:
                    self.rows[key] = (partition, v, w)
            elif self.engine == "first-row":
                self.rows.setdefault(key, (partition, v, w))
            elif old is None:
                self.rows[key] = (partition, v, w)
            elif self.engine == "partial-update":
                pairs = zip((v, w), old[1:], strict=True)
                new = [was if value is None else value for value, was in pairs]
                self.rows[key] = (old[0], *new)
            else:
                numbers = [x for x in (old[1], v) if x is not None]
                most = [x for x in (old[2], w) if x is not None]
                self.rows[key] = (
                    old[0],
                    sum(numbers) if numbers else None,
                    max(most, default=None),
                )


values = st.none() | st.integers(0, 9)
partitions = st.sampled_from(["a", "b", "c", None])


def batches(kinds: list[str]) -> st.SearchStrategy[list[list[Row]]]:
    row = st.tuples(st.sampled_from(kinds), st.integers(0, 12), partitions, values, values)
    return st.lists(st.lists(row, min_size=1, max_size=15), min_size=1, max_size=6)


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "aggregation", "first-row"])
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), gathered=st.sampled_from([1, 200, 1 << 20]))
def test_each_key_is_once_where_its_engine_says(
    tmp_path: Path, engine: str, data: st.DataObject, gathered: int
) -> None:
    kinds = ["+I", "+U", "-D", "-U"] if engine == "deduplicate" else ["+I", "+U"]
    histories = data.draw(batches(kinds))
    number = len(list(tmp_path.iterdir()))
    lake = tmp_path / f"h{number}"
    with (
        pytest.MonkeyPatch.context() as patch,
        lsm.open_catalog(f"sqlite:///{lake}.db", warehouse=str(lake)) as catalog,
    ):
        patch.setattr(buckets, "_GATHERED_BYTES", gathered)
        table, model = created(catalog, engine), Model(engine)
        for given_rows in histories:
            made = rows(given_rows)
            table.upsert(pa.Table.from_batches(made.to_batches(max_chunksize=4)))
            model.write(given_rows)
            assert state(table) == model.rows
        table.compact(full=True)
        assert state(table) == model.rows
        assert table.verify().is_clean


def test_a_key_leaves_its_old_partition(catalog: Catalog) -> None:
    table = created(catalog, "deduplicate")
    table.upsert(rows([("+I", k, "a", k, 0) for k in range(20)]))
    table.upsert(rows([("+U", k, "b", k, 1) for k in range(5, 30)]))
    table.upsert(rows([("+I", 7, "c", 0, 2), ("+I", 7, "d", 0, 3), ("+I", 7, "a", 0, 4)]))
    found = state(table)
    assert found[3] == ("a", 3, 0)
    assert found[6] == ("b", 6, 1)
    assert found[7] == ("a", 0, 4)
    assert len(found) == 30
    assert table.lookup([{"k": 6}, {"k": 99}]).column("_found").to_pylist() == [True, False]


def test_deletes_need_no_partition(catalog: Catalog) -> None:
    for engine in ("deduplicate", "aggregation"):
        table = created(catalog, engine, engine[:3], **(
            {"aggregation.remove-record-on-delete": "true"} if engine == "aggregation" else {}
        ))  # fmt: skip
        table.upsert(rows([("+I", k, "ab"[k % 2], k, 0) for k in range(10)]))
        table.delete([{"k": 3}, {"k": 4}, {"k": 77}])
        assert sorted(state(table)) == [0, 1, 2, 5, 6, 7, 8, 9]
        table.upsert(rows([("+I", 3, "a", 0, 0)]))
        assert len(state(table)) == 9


def test_part_of_the_key_may_be_a_partition_column(catalog: Catalog) -> None:
    schema = pa.schema([("k", pa.int64()), ("p", pa.string()), ("q", pa.string())])
    table = catalog.create_table(
        "db.s", schema, primary_key=["k", "p"], partitioned_by=["p", "q"], options={"bucket": "-1"}
    )
    table.upsert([{"k": 1, "p": p, "q": "x"} for p in "ab"])
    table.upsert([{"k": 1, "p": "b", "q": "y"}])
    found = sorted(map(tuple, (row.values() for row in table.scan().to_arrow().to_pylist())))
    assert found == [(1, "a", "x"), (1, "b", "y")]


class Stream:
    """Rows whose first reading ends after somebody else has acted."""

    def __init__(self, table: pa.Table, act: object) -> None:
        self.table, self.acts = table, [act]

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        def read() -> Iterator[pa.RecordBatch]:
            yield from self.table.to_batches()
            if self.acts:
                self.acts.pop()()

        reader = pa.RecordBatchReader.from_batches(self.table.schema, read())
        return reader.__arrow_c_stream__(requested_schema)


class Interrupted(Stream):
    """The same of a frame, which has a length and can be read again."""

    def __len__(self) -> int:
        return self.table.num_rows


@pytest.mark.parametrize("engine", ["deduplicate", "aggregation"])
def test_keys_that_others_move_meanwhile_are_looked_for_again(
    catalog: Catalog, engine: str
) -> None:
    table, model = created(catalog, engine), Model(engine)
    before: list[Row] = [("+I", k, "a", k, 0) for k in range(10)]
    theirs: list[Row] = [("+I", k, "b", k, 1) for k in range(5, 15)]
    ours: list[Row] = [("+I", k, "c", k, 2) for k in range(8, 18)]
    other = lsm.open_table(table.location)
    table.upsert(rows(before))
    table.upsert(Interrupted(rows(ours), lambda: other.upsert(rows(theirs))))
    for part in (before, theirs, ours):
        model.write(part)
    assert state(table) == model.rows
    assert table.verify().is_clean


@pytest.mark.parametrize("is_reader", [True, False])
def test_a_stream_cannot_be_read_again(catalog: Catalog, *, is_reader: bool) -> None:
    """At its end it would look like no rows, and be acknowledged as such."""
    table = created(catalog, "deduplicate")
    other = lsm.open_table(table.location)
    table.upsert(rows([("+I", 1, "a", 0, 0)]))
    theirs = rows([("+I", 1, "c", 0, 0)])
    given = Stream(rows([("+I", 1, "b", 0, 0)]), lambda: other.upsert(theirs))
    with pytest.raises(lsm.CommitConflictError):
        table.upsert(pa.RecordBatchReader.from_stream(given) if is_reader else given)
    assert state(table) == {1: ("c", 0, 0)}
    assert table.verify().is_clean


def test_a_compaction_meanwhile_is_no_conflict(catalog: Catalog) -> None:
    table = created(catalog, "deduplicate", **{"write-only": "true"})
    for turn in range(3):
        table.upsert(rows([("+I", k, "a", turn, 0) for k in range(10)]))
    other = lsm.open_table(table.location)
    slow = Interrupted(
        rows([("+I", k, "b", 9, 0) for k in range(5)]), lambda: other.compact(full=True)
    )
    table.upsert(slow)
    assert {key: row[0] for key, row in state(table).items()} == {
        k: "b" if k < 5 else "a" for k in range(10)
    }


def test_an_overwrite_replaces_all_or_nothing(catalog: Catalog) -> None:
    table = created(catalog, "deduplicate")
    table.upsert(rows([("+I", k, "ab"[k % 2], 0, 0) for k in range(10)]))
    new = rows([("+I", 1, "a", 1, 1)]).drop_columns("_row_kind")
    before = sorted(Path(table.location).rglob("*"))
    for partition in (None, {"p": "a"}):
        with pytest.raises(lsm.InvalidInputError, match="dynamic-partition-overwrite"):
            table.overwrite(new, partition)
    files = [path for path in Path(table.location).rglob("*") if path.is_file()]
    assert set(files) <= set(before)
    table.overwrite([], {"p": "b"})
    assert sorted(state(table)) == [0, 2, 4, 6, 8]
    table.alter(lsm.SetOption(key="dynamic-partition-overwrite", value="false"))
    table.overwrite(new)
    assert state(table) == {1: ("a", 1, 1)}


def test_a_record_may_stay_where_it_is(catalog: Catalog) -> None:
    table = created(catalog, "deduplicate", **{"simple.index.update.partition.path": "false"})
    table.upsert(rows([("+I", k, "a", k, 0) for k in range(6)]))
    table.upsert(rows([("+U", k, "b", k, 1) for k in range(3, 9)]))
    found = state(table)
    assert {key: row[0] for key, row in found.items()} == {
        k: "a" if k < 6 else "b" for k in range(9)
    }
    assert found[4] == ("a", 4, 1)
    table.delete([{"k": 4}])
    table.upsert(rows([("+I", 4, "c", 0, 2), ("-D", 50, "x", 0, 0), ("+I", 50, "y", 0, 0)]))
    assert state(table)[4] == ("c", 0, 2)
    assert state(table)[50] == ("y", 0, 0)
    assert table.verify().is_clean


HOUR = 3_600_000


def story(engine: str) -> Story:
    return Story(
        COLUMNS, key=("k",), partitioned_by=("p",),
        options={"bucket": "-1", "merge-engine": engine, "cross-partition-upsert.index-ttl": "1 h"},
    )  # fmt: skip


def put(told: Story, *given: tuple[int, str, int]) -> list[tuple[int, str, int]]:
    """Upsert rows (key, partition, value); return what is there, by key and partition."""
    told.table.upsert([{"k": key, "p": part, "v": value, "w": 0} for key, part, value in given])
    read = told.table.scan().to_arrow().to_pylist()
    return sorted((row["k"], row["p"], row["v"]) for row in read)


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "first-row"])
def test_a_key_of_another_partition_is_forgotten_after_its_time(engine: str) -> None:
    told = story(engine)
    put(told, (1, "old", 1), (2, "old", 1))
    told.clock.advance(HOUR - 1)
    put(told, (1, "new", 2))
    told.table.compact(full=True)
    within = {
        "deduplicate": (1, "new", 2),
        "partial-update": (1, "old", 2),
        "first-row": (1, "old", 1),
    }
    read = sorted(
        (row["k"], row["p"], row["v"]) for row in told.table.scan().to_arrow().to_pylist()
    )
    assert read == sorted([within[engine], (2, "old", 1)])
    told.clock.advance(2 * HOUR)
    put(told, (2, "new", 3))
    told.table.compact(full=True)
    read = sorted(
        (row["k"], row["p"], row["v"]) for row in told.table.scan().to_arrow().to_pylist()
    )
    assert read == sorted([within[engine], (2, "old", 1), (2, "new", 3)])


def test_a_key_of_the_same_partition_is_never_forgotten() -> None:
    told = story("deduplicate")
    put(told, (1, "a", 1), (2, "b", 1))
    told.clock.advance(5 * HOUR)
    assert put(told, (1, "a", 2)) == [(1, "a", 2), (2, "b", 1)]


def test_a_bucket_with_a_young_file_is_remembered_whole() -> None:
    told = story("deduplicate")
    put(told, (1, "old", 1), (2, "old", 1))
    told.clock.advance(5 * HOUR)
    put(told, (3, "old", 1))
    assert put(told, (1, "new", 2)) == [(1, "new", 2), (2, "old", 1), (3, "old", 1)]


def test_a_key_that_moves_cannot_have_its_delete_ignored(catalog: Catalog) -> None:
    with pytest.raises(lsm.InvalidOptionError, match=r"'ignore-delete'.*'merge-engine'"):
        created(catalog, "deduplicate", "refused", **{"ignore-delete": "true"})
    assert catalog.list_databases() == []
    table = created(catalog, "deduplicate")
    with pytest.raises(lsm.InvalidOptionError, match=r"'ignore-delete'.*'merge-engine'"):
        table.alter(lsm.SetOption(key="ignore-delete", value="true"))
    created(catalog, "aggregation", "sums", **{"ignore-delete": "true"})
    stays = {"ignore-delete": "true", "simple.index.update.partition.path": "false"}
    kept = created(catalog, "deduplicate", "kept", **stays)
    kept.upsert(rows([("+I", 1, "a", 1, 0)]))
    kept.upsert(rows([("+I", 1, "b", 2, 0)]))
    assert state(kept) == {1: ("a", 2, 0)}


def test_a_table_of_others_that_ignores_the_delete_of_a_move_is_read_and_not_written() -> None:
    told = story("deduplicate")
    stored = json.loads(without_checksum(told.disk.read("schema/schema-0")))
    stored["options"]["ignore-delete"] = "true"
    told.disk.replace("schema/schema-0", json.dumps(stored).encode())
    told.table = told.reopened()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "check_moves_delete", lambda _: None)
        assert put(told, (1, "a", 1)) == [(1, "a", 1)]
    files = told.files()
    with pytest.raises(lsm.InvalidOptionError, match=r"'ignore-delete'.*'merge-engine'"):
        put(told, (1, "b", 2))
    assert told.files() == files
    assert [row["p"] for row in told.table.scan().to_arrow().to_pylist()] == ["a"]


def test_a_replayed_delete_is_no_commit_and_returns_the_bookmark_of_the_first(
    catalog: Catalog,
) -> None:
    table = created(catalog, "deduplicate")
    table.upsert(pa.table({"k": [1, 2], "p": ["a", "b"], "v": [1, 2], "w": [1, 2]}))
    first = table.delete([{"k": 1}], commit_user="u", commit_identifier=7)
    table.upsert(pa.table({"k": [1], "p": ["c"], "v": [3], "w": [3]}))
    table.delete([{"k": 1}])
    newest = table.latest_snapshot()
    assert first is not None
    again = table.delete([{"k": 1}], commit_user="u", commit_identifier=7)
    assert again is not None
    assert again.id == first.id
    assert table.latest_snapshot() == newest
    assert table.delete([{"k": 1}], commit_user="u", commit_identifier=8) is None
