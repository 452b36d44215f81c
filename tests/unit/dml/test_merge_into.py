"""MERGE, UPDATE … WHERE and DELETE … WHERE: clause by clause, in one commit, right beside other writers."""

import random
from datetime import date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lsm_engine as lsm
from lsm_engine.dml import merge
from lsm_engine.lookup.lookup import TableQuery
from lsm_engine.read.scan import Scan
from lsm_engine.read.scan_plan import ScanRequest
from tests.samples import seeds
from tests.unit.table.history_tables import Story

COLUMNS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("n", pa.int64()), ("name", pa.string())]
)


def story(**options):
    made = Story(COLUMNS, options={"bucket": "2", **options})
    made.table.upsert([{"id": k, "n": k * 10, "name": f"n{k}"} for k in range(1, 6)])
    return made


@pytest.fixture
def table():
    return story().table


def rows(table):
    return {row["id"]: (row["n"], row["name"]) for row in table}


SOURCE = [{"id": 2, "n": 5, "name": "two"}, {"id": 9, "n": 1, "name": "nine"}]


def test_update_and_insert_as_delta_users_write_it(table):
    made = (
        table.merge(SOURCE)
        .when_matched_update({"n": "target.n + source.n", "name": "upper(source.name)"})
        .when_not_matched_insert_all()
        .execute()
    )
    assert rows(table)[2] == (25, "TWO")
    assert rows(table)[9] == (1, "nine")
    assert len(table) == 6
    assert lsm.row_counts_of(made.properties) == lsm.RowCounts(inserted=1, updated=1)
    assert table.latest_snapshot().id == 2  # one commit


@pytest.mark.parametrize(
    "count", [0, 60]
)  # of other rows: the table is read, or keys are looked up
def test_zeros_of_a_key_are_one_value_and_so_are_its_nans(count):
    """Joins of Arrow compare bits: -0.0 was inserted over the row with 0.0, and NaN was not NaN where a key is set."""
    nan, other_nan = float("nan"), np.uint64(0xFFF8000000000001).view(np.float64)
    schema = pa.schema([pa.field("id", pa.float64(), nullable=False), ("n", pa.int64())])
    table = Story(schema, options={"bucket": "1"}).table
    table.upsert([{"id": 0.0, "n": 1}, {"id": nan, "n": 2}])
    table.upsert([{"id": float(k), "n": 0} for k in range(1, count + 1)])
    source = pa.table({"id": [-0.0, other_nan], "n": [10, 20]})
    made = table.merge(source, "id").when_matched_update({"n": "source.n"}).when_not_matched_insert_all().execute()  # fmt: skip
    assert lsm.row_counts_of(made.properties) == lsm.RowCounts(updated=2)
    for source_rows in (source, source.slice(1)):
        table.merge(source_rows, "id").when_matched_update({"id": "source.id", "n": "target.n + 1"}).execute()  # fmt: skip
    assert table.count() == count + 2
    assert sorted(row["n"] for row in table if row["n"]) == [11, 22]
    for twice in ([0.0, -0.0], [nan, other_nan]):
        building = table.merge(pa.table({"id": twice}), "id")
        with pytest.raises(lsm.InvalidInputError, match="several rows of the source would change 1 row"):  # fmt: skip
            building.when_matched_delete().execute()
    with pytest.raises(lsm.InvalidInputError, match=r"would change key column 'id'.*nan"):
        table.update(set={"id": 5.5}, where="n = 22")


def test_an_insert_without_its_key_is_refused_though_no_row_gets_to_it(table):
    for source in ([{"id": 2, "n": 5}], [{"id": 9, "n": 5}]):
        building = table.merge(source).when_matched_update_all()
        with pytest.raises(
            lsm.InvalidInputError, match="inserted rows need a value for key column 'id'"
        ):
            building.when_not_matched_insert({"n": "source.n"}).execute()
    with pytest.raises(lsm.InvalidInputError, match="need a value for key column 'id'"):
        table.merge(
            [{"other": 2, "n": 5}], on={"id": "other"}
        ).when_not_matched_insert_all().execute()
    assert table.latest_snapshot().id == 1


def test_the_first_clause_that_holds_decides(table):
    source = [{"id": k, "n": k} for k in range(1, 5)]
    table.merge(source).when_matched_delete("source.n = 1").when_matched_update(
        {"name": "'even'"}, where="source.n % 2 = 0"
    ).when_matched_update({"name": None}, where=lsm.col("source.n") < 4).execute()
    assert rows(table) == {2: (20, "even"), 3: (30, None), 4: (40, "even"), 5: (50, "n5")}


def test_rows_that_the_source_lacks(table):
    made = (
        table.merge(SOURCE)
        .when_not_matched_by_source_delete("n >= 40")
        .when_not_matched_by_source_update({"n": 0})
        .execute()
    )
    assert rows(table) == {1: (0, "n1"), 2: (20, "n2"), 3: (0, "n3")}
    assert lsm.row_counts_of(made.properties) == lsm.RowCounts(updated=2, deleted=2)


def test_any_form_of_condition_and_value(table):
    table.update(set={"n": pc.multiply(pc.field("n"), 2)}, where=pc.field("id") == 1)
    table.update(set={"n": "n + 1"}, where=[lsm.col("id") > 1, "id < 4"])
    table.update(set={"name": "CASE WHEN n > 45 THEN 'big' ELSE name || '!' END"})
    table.delete(where=lsm.col("id") == 4)
    assert rows(table) == {1: (20, "n1!"), 2: (21, "n2!"), 3: (31, "n3!"), 5: (50, "big")}


def test_matching_on_other_columns_and_by_condition(table):
    source = pa.table({"label": ["n1", "n3", "n9"], "limit": [100, 5, 0]})
    table.merge(
        source, on={"name": "label"}, condition="source.limit > target.n"
    ).when_matched_update({"n": "limit"}).when_not_matched_by_source_update(
        {"n": -1}, where="id = 5"
    ).execute()
    assert rows(table) == {
        1: (100, "n1"), 2: (20, "n2"), 3: (30, "n3"), 4: (40, "n4"), 5: (-1, "n5"),
    }  # fmt: skip


def test_nothing_to_change_commits_nothing(table):
    assert table.merge([{"id": 77, "n": 1}]).when_matched_delete().execute() is None
    assert table.merge([]).when_matched_delete().execute() is None
    assert table.delete(where="id > 99") is None
    assert table.latest_snapshot().id == 1


def refused(table, error, match, act):
    before = rows(table)
    with pytest.raises(error, match=match):
        act()
    assert rows(table) == before
    assert table.latest_snapshot().id == 1


def test_what_is_ambiguous_or_wrong_is_refused_whole(table):
    twice = [{"id": 2, "n": 1}, {"id": 2, "n": 2}]
    new = [{"id": 7, "n": 1}, {"id": 7, "n": 2}]
    wrong = lsm.InvalidInputError
    refused(
        table, wrong, "several rows", lambda: table.merge(twice).when_matched_update_all().execute()
    )
    refused(
        table,
        wrong,
        "same key as another",
        lambda: table.merge(new).when_not_matched_insert_all().execute(),
    )
    refused(table, wrong, "key column 'id'", lambda: table.update(set={"id": "id + 1"}))
    refused(table, lsm.NotFoundError, "nope", lambda: table.update(set={"nope": 1}))
    refused(table, wrong, "nope", lambda: table.update(set={"n": "nope"}))
    refused(table, wrong, "'n'", lambda: table.update(set={"n": "'x'"}))
    refused(table, wrong, "no condition", lambda: table.delete(where="n + 1"))
    refused(table, wrong, "clause", lambda: table.merge(SOURCE).execute())
    refused(
        table,
        wrong,
        "source",
        lambda: table.merge(SOURCE, on={"id": "label"}).when_matched_delete().execute(),
    )
    refused(table, wrong, "one of them", lambda: table.delete([{"id": 1}], where="id = 1"))
    refused(table, wrong, "keys, or where", lambda: table.delete())
    refused(table, wrong, "overflow", lambda: table.update(set={"n": "n * 9223372036854775807"}))
    refused(
        table, wrong, "there already",
        lambda: table.merge([{"id": 1, "name": "x"}], on="name").when_not_matched_insert_all().execute(),
    )  # fmt: skip


ALL = {
    "update": lambda merging: merging.when_matched_update_all(),
    "insert": lambda merging: merging.when_not_matched_insert_all(),
}


@pytest.mark.parametrize("clause", ALL)
@pytest.mark.parametrize("typed", ["nmae", "Name", "names", "NAME_"])
def test_a_misspelled_column_of_the_source_is_refused_with_the_one_it_may_be(clause, typed, table):
    merging = ALL[clause](table.merge([{"id": 2, "n": 5, typed: "two"}, {"id": 9, typed: "nine"}]))
    with pytest.raises(lsm.InvalidInputError, match=f"'{typed}'.*'name'.*rename it.*leave it out"):
        merging.execute()
    assert table.latest_snapshot().id == 1


def test_other_columns_that_the_table_lacks_are_ignored_or_may_be_mentioned(table):
    source = [{"id": 2, "n": 5, "loaded_at": date(2026, 1, 1), "name": "two", "named": "x"}]
    table.merge(source).when_matched_update_all().execute()  # the source has "name" itself
    assert rows(table)[2] == (5, "two")
    source = [{"id": 3, "n": 6, "names": "three", "nn": 1}]
    for where in ("source.names = 'three'", "nn = 1 and source.\"names\" > 'a'"):
        table.merge(source).when_matched_update_all(where=where).execute()
    table.merge(source).when_matched_update_all(
        where=[lsm.col("source.names") == "three"]
    ).execute()
    table.merge(source).when_matched_update_all(where=pc.field("source.names") == "three").execute()
    table.merge(source, on={"name": "names"}).when_matched_update_all().execute()
    table.merge([{"id": 4, "names": "four"}]).when_matched_update(
        {"name": "source.names"}, where="source.id = 4"
    ).when_not_matched_insert_all().execute()
    assert (rows(table)[3], rows(table)[4]) == ((6, "n3"), (40, "four"))


def test_several_matches_are_fine_where_only_one_changes_the_row(table):
    twice = [{"id": 2, "n": 1}, {"id": 2, "n": 2}]
    table.merge(twice).when_matched_update_all(where="source.n = 2").execute()
    assert rows(table)[2] == (2, "n2")


def test_a_computed_key_that_is_there_is_refused_like_any_other(table):
    source = [{"id": 10, "n": 1}]
    computed = table.merge(source).when_not_matched_insert({"id": "source.id - 9", "n": "99"})
    refused(table, lsm.InvalidInputError, "there already", computed.execute)
    renamed = table.merge([{"k": 10, "id": 1}], on={"id": "k"}).when_not_matched_insert_all()
    refused(table, lsm.InvalidInputError, "there already", renamed.execute)
    table.merge(source).when_not_matched_insert({"id": "source.id + 1"}).execute()
    assert 11 in rows(table)


def test_columns_that_came_after_the_last_commit_can_be_set(table):
    table.alter(lsm.AddColumn("x", pa.string(), first=True))
    table.update(set={"x": "'new'"}, where="id = 2")
    table.merge([{"id": 3, "x": "merged"}]).when_matched_update_all().execute()
    assert {row["id"]: row["x"] for row in table} == {
        1: None, 2: "new", 3: "merged", 4: None, 5: None,
    }  # fmt: skip


@pytest.mark.parametrize("engine", ["aggregation", "partial-update", "first-row"])
def test_engines_that_combine_rows_refuse_updates_by_name(engine):
    made = Story(COLUMNS, options={"merge-engine": engine})
    with pytest.raises(lsm.UnsupportedError, match=engine):
        made.table.merge(SOURCE).when_matched_update_all().execute()
    made.table.merge(SOURCE).when_not_matched_insert_all().execute()
    assert made.table.latest_snapshot().id == 1


def test_a_table_without_a_key_says_what_to_use():
    made = Story(COLUMNS, key=(), options={"bucket": "-1"})
    with pytest.raises(lsm.UnsupportedError, match="append"):
        made.table.merge(SOURCE, on="id").when_matched_delete().execute()


def test_null_keys_of_the_source_match_nothing(table):
    source = pa.table({"id": pa.array([None, 1], pa.int64()), "n": [7, 8]})
    table.merge(source).when_matched_update_all().execute()
    assert rows(table)[1] == (8, "n1")
    with pytest.raises(lsm.InvalidInputError, match="id"):
        table.merge(source).when_not_matched_insert_all().execute()


def test_a_few_keys_of_a_large_table_are_looked_up(monkeypatch):
    made = story()
    made.table.upsert([{"id": k, "n": 0, "name": "x"} for k in range(100, 200)])
    monkeypatch.setattr(lsm.Scan, "to_batches", lambda _: pytest.fail("scanned"))
    made.table.merge(pa.table({"id": pa.array([150], pa.int32()), "n": [3]})).when_matched_update(
        {"n": "source.n"}
    ).execute()
    monkeypatch.undo()
    assert rows(made.table)[150] == (3, "x")


def test_a_merge_that_others_overtake_looks_again(monkeypatch):
    made = story()
    other = made.reopened()

    original, tries = merge.stage, []

    def overtaken(session, staged, base):
        messages = original(session, staged, base)
        if not tries:
            other.upsert([{"id": 2, "n": 1000, "name": "theirs"}, {"id": 9, "n": 0}])
        tries.append(1)
        return messages

    monkeypatch.setattr(merge, "stage", overtaken)
    made.table.merge(SOURCE).when_matched_update({"n": "target.n + source.n"}).execute()
    assert len(tries) == 2
    assert rows(made.table)[2] == (1005, "theirs")
    assert rows(made.table)[9] == (1, None)


def test_a_replay_is_a_no_op(table):
    for _ in range(2):
        table.merge(SOURCE, commit_user="job", commit_identifier=7).when_matched_update(
            {"n": "target.n + 1"}
        ).execute()
    assert rows(table)[2] == (21, "n2")


# --- against a model ---------------------------------------------------------------------------


def modelled(state, source, clauses):
    """What a merge makes of {id: n}: the same rules, one row at a time."""
    new = dict(state)
    by_key = {row["id"]: row["n"] for row in source}
    for key, n in state.items():
        match = "matched" if key in by_key else "by source"
        for kind, what, limit in clauses:
            if kind != match or not n % 7 < limit:
                continue
            if what == "delete":
                del new[key]
            else:
                new[key] = n + by_key.get(key, 1)
            break
    for key, n in by_key.items():
        if key not in state:
            for kind, _, limit in clauses:
                if kind == "not matched" and n % 7 < limit:
                    new[key] = n
                    break
    return new


def merged(table, source, clauses):
    merge = table.merge(
        pa.Table.from_pylist(source, pa.schema([("id", pa.int64()), ("n", pa.int64())]))
    )
    for kind, what, limit in clauses:
        if kind == "not matched":
            merge = merge.when_not_matched_insert_all(f"n % 7 < {limit}")
        elif kind == "matched" and what == "delete":
            merge = merge.when_matched_delete(
                lsm.col("target.n").is_in([n for n in range(-50, 3000) if n % 7 < limit])
            )
        elif kind == "matched":
            merge = merge.when_matched_update(
                {"n": "target.n + source.n"}, f"target.n % 7 < {limit}"
            )
        elif what == "delete":
            merge = merge.when_not_matched_by_source_delete(f"target.n % 7 < {limit}")
        else:
            merge = merge.when_not_matched_by_source_update({"n": "n + 1"}, f"n % 7 < {limit}")
    return merge.execute()


@pytest.mark.parametrize("seed", seeds(4, 8))
def test_random_merges_are_those_of_the_model(seed):
    chance = random.Random(seed)
    options = [{"bucket": "2"}, {"bucket": "-1"}, {"deletion-vectors.enabled": "true"}, {}][
        seed % 4
    ]
    made = Story(
        pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())]),
        options={"write-only": "false", **options},
    )
    state = {}
    for _ in range(12):
        ids = chance.sample(range(40), chance.randrange(12))
        source = [{"id": key, "n": chance.randrange(50)} for key in ids]
        kinds = [("matched", "delete"), ("matched", "update"), ("not matched", "insert"),
                 ("by source", "delete"), ("by source", "update")]  # fmt: skip
        clauses = [
            (*chance.choice(kinds), chance.randrange(1, 8)) for _ in range(chance.randrange(1, 5))
        ]
        merged(made.table, source, clauses)
        state = modelled(state, source, clauses)
        assert {row["id"]: row["n"] for row in made.reopened()} == state


BY_SOURCE = [
    {"bucket": "2"}, {"bucket": "-1"}, {"deletion-vectors.enabled": "true"},
    {"changelog-producer": "lookup"}, {"changelog-producer": "full-compaction"},
    {"deletion-vectors.enabled": "true", "changelog-producer": "lookup", "write-only": "true"},
]  # fmt: skip


@pytest.mark.parametrize("options", BY_SOURCE, ids=str)
def test_random_merges_of_whole_rows_look_at_keys_alone(options, monkeypatch):
    """Conditions name the source, and updates set every column: no value of the table matters.

    But of a deleted row to readers of changes, where no compaction looks it up for them.
    """
    deletes = "changelog-producer" in options
    chance = random.Random(str(options))
    monkeypatch.setattr(merge, "LOOKED_UP_SHARE", 0)
    monkeypatch.setattr(TableQuery, "lookup", lambda *_, **__: pytest.fail("read values"))
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
    made = Story(columns, options={"write-only": "false", "bucket": "1", **options})
    state = {}
    for _ in range(12):
        source = {
            key: chance.randrange(50) for key in chance.sample(range(40), chance.randrange(1, 20))
        }
        least, most = sorted((chance.randrange(50), chance.randrange(50)))
        rows_given = pa.table({"id": [*source], "n": [*source.values()]}, schema=columns)
        begun = made.table.merge(rows_given)
        if deletes:
            begun = begun.when_matched_delete(f"source.n < {least}")
        begun.when_matched_update_all(f"source.n < {most}").when_not_matched_insert_all().execute()
        for key, n in source.items():
            if key not in state:
                state[key] = n
            elif deletes and n < least:
                del state[key]
            elif n < most:
                state[key] = n
        if chance.random() < 0.3:
            made.table.compact(full=chance.random() < 0.5)
        if "write-only" in options:
            made.table.compact()
        assert {row["id"]: row["n"] for row in made.reopened()} == state


@pytest.mark.parametrize(
    "more",
    [
        {"columns": [("note", pa.string())]},
        {"options": {}, "deletes": True},
        {"options": {"changelog-producer": "input"}, "deletes": True},
        {"options": {"sequence.field": "n", "changelog-producer": "lookup"}, "deletes": True},
        {"options": {"record-level.expire-time": "1 d", "record-level.time-field": "n"}},
        {"where": "target.n > 0"},
        {
            "where": "n > 0",
            "source": pa.table({"id": [3]}),
            "options": {"changelog-producer": "lookup"},
        },
        {"where": lsm.col("source.n") > 0},
    ],
    ids=str,
)
def test_values_are_read_where_the_outcome_depends_on_them(monkeypatch, more):
    """What the source leaves, what a deletion tells others, what a condition names, or may name."""
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int32())])
    for name, kind in more.get("columns", ()):
        columns = columns.append(pa.field(name, kind))
    made = Story(columns, options={"bucket": "1", **more.get("options", {})})
    now = 2_000_000_000
    made.table.upsert([{"id": key, "n": now} for key in range(5)])
    monkeypatch.setattr(merge, "LOOKED_UP_SHARE", 0)
    looked = []
    lookup = TableQuery.lookup
    monkeypatch.setattr(
        TableQuery, "lookup", lambda *a, **named: looked.append(a) or lookup(*a, **named)
    )
    source = more.get("source", pa.table({"id": [3], "n": pa.array([now + 1], pa.int32())}))
    begun = made.table.merge(source)
    if more.get("deletes") or "source" in more:
        begun.when_matched_delete(more.get("where")).execute()
        assert 3 not in {row["id"] for row in made.reopened()}
    else:
        begun.when_matched_update_all(more.get("where")).execute()
        assert {row["id"]: row["n"] for row in made.reopened()}[3] == now + 1
    assert looked


WHERES = [
    "id < 20", "n >= 10 AND name <> 'n3'", "name IN ('n1', 'n7') OR n IS NULL", "n % 3 = 1",
    "NOT (id BETWEEN 5 AND 30)", "day = DATE '2024-05-02'", "DAY < '2024-05-02' AND n > 4",
    "target.n = 5", "target.N % 4 = 1", "Target.NAME = 'n5'", "n = 99999999999", lsm.col("n") > 12, [lsm.col("id") > 3, lsm.col("n") < 9],
    pc.field("name") == "n4", "ratio > 0.25", "ratio IS NOT NULL",
]  # fmt: skip


@pytest.mark.parametrize("where", WHERES, ids=str)
@pytest.mark.parametrize("engine", ["deduplicate", "partial-update"])
def test_rows_by_a_condition_are_those_of_every_row_looked_at(where, engine, monkeypatch):
    """Which columns and rows are left out of the read changes nothing."""
    columns = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False), ("day", pa.date32()), ("n", pa.int32()),
            ("name", pa.string()), ("ratio", pa.float64()),
        ]
    )  # fmt: skip
    options = {"merge-engine": engine, "bucket": "2"}
    if engine == "partial-update":
        options["partial-update.remove-record-on-delete"] = "true"
    stories = [Story(columns, options=options) for _ in range(2)]
    for made in stories:
        for low in (0, 20):
            made.table.upsert(
                [
                    {
                        "id": k,
                        "day": date(2024, 5, 1 + k % 3),
                        "n": None if k % 11 == 0 else k % 13 + low,
                        "name": f"n{k % 8}",
                        "ratio": None if k % 5 == 0 else float("nan") if k % 7 == 0 else k / 64,
                    }
                    for k in range(low, low + 30)
                ]
            )
    pruned, whole = stories
    pruned.table.delete(where=where)
    if engine == "deduplicate":
        pruned.table.update(set={"name": "'set'"}, where="id < 25 AND name = 'n2'")
    monkeypatch.setattr(merge, "rows_needed", lambda *_: ScanRequest(is_batch=False))
    whole.table.delete(where=where)
    if engine == "deduplicate":
        whole.table.update(set={"name": "'set'"}, where="id < 25 AND name = 'n2'")
    found, wanted = ([*made.reopened()] for made in stories)
    assert sorted(map(str, found)) == sorted(map(str, wanted))
    assert len(found) < 50 or where == "n = 99999999999"


@pytest.mark.parametrize("producer", ["none", "input", "lookup", "full-compaction"])
def test_readers_of_changes_get_whole_rows_of_what_a_condition_deletes(producer):
    """Whatever the columns that the condition, or the source, names."""
    made = story(**{"changelog-producer": producer})
    made.table.compact(full=True)
    before = made.table.latest_snapshot()
    made.table.delete(where="id = 1 OR n = 30")
    made.table.merge([{"id": 4}, {"id": 5}]).when_matched_delete("source.id > 4").execute()
    made.table.compact(full=True)
    rows = made.table.changelog(after=before).to_pylist()
    gone = {row["id"]: (row["n"], row["name"]) for row in rows if row["_row_kind"] == "-D"}
    assert gone == {1: (10, "n1"), 3: (30, "n3"), 5: (50, "n5")}


def test_a_delete_by_a_condition_reads_the_columns_and_files_that_matter(monkeypatch):
    made = story(
        **{"changelog-producer": "lookup"}
    )  # of deleted rows a compaction looks up the rest
    made.table.upsert([{"id": k, "n": k, "name": "x"} for k in range(1000, 1100)])
    scans = []
    begin = Scan.__init__
    monkeypatch.setattr(
        Scan, "__init__", lambda scan, *a, **named: scans.append(scan) or begin(scan, *a, **named)
    )
    made.table.delete(where="id >= 1000 AND n < 1050")
    (scan,) = scans
    assert scan.schema.names == ["id", "n"]
    assert scan.explain().files.kept < scan.explain().files.total
    assert len(made.table) == 55


def test_decimals_and_divisions_are_computed_as_sql_says():
    made = Story(
        pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                ("d", pa.decimal128(10, 2)),
                ("f", pa.float64()),
            ]
        )
    )
    made.table.upsert([{"id": 7, "d": Decimal("1.50"), "f": None}])
    made.table.update(set={"d": "cast(d * 2 AS DECIMAL(10, 2))", "f": "id / 2"})
    assert list(made.table) == [{"id": 7, "d": Decimal("3.00"), "f": 3.5}]
    made.table.update(set={"f": "coalesce(nullif(f, 3.5), greatest(1.0, 2.0), 9)"})
    assert next(iter(made.table))["f"] == 2.0
    with pytest.raises(lsm.InvalidInputError, match="zero"):
        made.table.update(set={"f": "id / 0"})


def test_rows_that_readers_do_not_see_yet_are_looked_at():
    """Level 0 of a table with deletion vectors is hidden until it is compacted, by another process maybe."""
    vectors = {"deletion-vectors.enabled": "true", "write-only": "true"}
    table = story(**vectors, **{"write.skip-unchanged": "true"}).table
    table.merge(SOURCE).when_matched_update({"n": "target.n + source.n"}).execute()
    table.update(set={"n": "n + 1"}, where="name = 'n3'")
    table.delete(where="id = 4")
    assert rows(table) == {}
    table.alter(lsm.SetOption("write-only", "false"))
    table.compact(full=True)
    assert rows(table) == {1: (10, "n1"), 2: (25, "n2"), 3: (31, "n3"), 5: (50, "n5")}
    table.alter(lsm.SetOption("write-only", "true"))
    table.upsert([{"id": 1, "n": 11, "name": "n1"}])
    table.upsert([{"id": 1, "n": 10, "name": "n1"}])  # as readers see it still, and not as it is
    table.alter(lsm.SetOption("write-only", "false"))
    table.compact(full=True)
    assert rows(table)[1] == (10, "n1")


def test_an_insert_is_refused_for_keys_that_readers_do_not_see_yet():
    vectors = {"deletion-vectors.enabled": "true", "write-only": "true"}
    table = story(**vectors, **{"merge-engine": "partial-update"}).table
    with pytest.raises(lsm.InvalidInputError, match="already"):
        table.insert([{"id": 3, "n": 1, "name": "again"}])


@pytest.mark.parametrize(
    ("kind", "key", "column"),
    [
        ("DATE", date(2024, 1, 2), pa.array([datetime(2024, 1, 2, 10)])),  # noqa: DTZ001
        ("DECIMAL(5, 2)", Decimal("1.23"), pa.array([1.2345])),
        ("INT", 1, pa.array([1.5])),
        ("DECIMAL(5, 2)", Decimal("1.23"), pa.array([Decimal("1.2345")])),
        ("INT", 1, pa.array([(1 << 32) + 1])),
    ],
)
@pytest.mark.parametrize("rows_there", [1, 40])
def test_values_that_are_not_the_key_match_no_row(tmp_path, kind, key, column, rows_there):
    """Cut to the key's type they would: a time to its day, a number to two digits."""
    with lsm.open_catalog(tmp_path) as catalog:
        made = catalog.create_table("a.t", {"k": kind, "n": "INT"}, primary_key="k")
        step = timedelta(days=1) if isinstance(key, date) else 1
        made.upsert([{"k": key + at * step, "n": 0} for at in range(rows_there)])
        before = made.to_arrow()
        source = pa.table({"given": column, "n": [7]})
        merge = made.merge(source, on={"k": "given"})
        for clause in (merge.when_matched_update({"n": 7}), merge.when_matched_delete()):
            with pytest.raises(lsm.InvalidInputError, match=r"given"):
                clause.execute()
        assert made.to_arrow().equals(before)
