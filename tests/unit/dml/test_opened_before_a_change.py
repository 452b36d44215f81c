"""Tables that were opened before another process added a column: what they write anew keeps its values."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lsm_engine as lsm
from lsm_engine.dml import merge

BUCKETS = {"fixed": "2", "dynamic": "-1", "postponed": "-2"}
ENGINES = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.default-aggregate-function": "last_non_null_value",
    },
}
Act = Callable[[lsm.Table], object]
SOURCE = [{"k": key, "n": 50} for key in range(6)]


def _opened_before(
    path: Path, options: dict[str, str], *, keyed: bool = True, column: str = "n"
) -> tuple[lsm.Table, lsm.Table]:
    """Return a table that does not know column `w`, and one that has written its values."""
    with lsm.open_catalog(path) as catalog:
        made = catalog.create_table(
            "db.t",
            {"k": int, "v": str, "n": int},
            primary_key="k" if keyed else (),
            options=options,
        )
    _put(made, [{"k": key, "v": "a", "n": key} for key in range(20)])
    stale, newer = lsm.open_table(made.location), lsm.open_table(made.location)
    newer.alter(lsm.AddColumn("w", "INT"))
    if column != "n":
        newer.alter(lsm.RenameColumn("n", column))
    start = 0 if keyed else 20
    _put(newer, [{"k": key + start, "v": "b", column: key, "w": key} for key in range(10)])
    return stale, newer


def _put(table: lsm.Table, rows: list[dict[str, Any]]) -> None:
    if table.schema.has_primary_key:
        table.upsert(rows)
    else:
        table.append(rows)


def _values(table: lsm.Table) -> dict[int, int]:
    rows = lsm.open_table(table.location).to_arrow().to_pylist()
    return {row["k"]: row["w"] for row in rows if row["w"] is not None}


def _require_kept(stale: lsm.Table, act: Act) -> None:
    before = _values(stale)
    assert len(before) >= 10
    act(stale)
    assert _values(stale) == before
    newest = lsm.open_table(stale.location)
    newest.compact(full=True)
    assert _values(stale) == before
    assert newest.verify(deep=True).is_clean


def _streamed(table: lsm.Table) -> None:
    with table.writer() as writer:
        for key in range(7):
            writer.write([{"k": key if _keeps_others(table) else 100 + key, "n": 9}])
            writer.commit()


def _rolled_back(table: lsm.Table) -> None:
    before = table.latest_snapshot()
    assert before is not None
    table.upsert([{"k": 19, "n": 1}])
    table.rollback_to_as_latest(before.id)


def _keeps_others(table: lsm.Table) -> bool:
    return table.options.texts.get("merge-engine") is not None


UPDATES: dict[str, Act] = {
    "set": lambda table: table.update(set={"n": "n + 1"}, where="k < 6"),
    "set in every row": lambda table: table.update(set={"n": 5}),
    "set again": lambda table: [table.update(set={"n": "n + 1"}) for _ in range(3)],
    "merge": lambda table: (
        table.merge(SOURCE, on="k").when_matched_update({"n": "source.n"}).execute()
    ),
    "merge few": lambda table: (
        table.merge(SOURCE[:1], on="k").when_matched_update({"n": "source.n"}).execute()
    ),
    "merge all": lambda table: (
        table.merge([*SOURCE, {"k": 70, "n": 1}], on="k")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    ),
    "merge the others": lambda table: (
        table.merge(SOURCE, on="k").when_not_matched_by_source_update({"n": "n + 1"}).execute()
    ),
    "merge by a condition": lambda table: (
        table.merge([{"least": 3}], on={}, condition="target.k > source.least")
        .when_matched_update({"n": "n + 1"})
        .execute()
    ),
    "merge and delete": lambda table: (
        table.merge([{"k": 19}, *SOURCE], on="k")
        .when_matched_delete(where="target.k = 19")
        .when_matched_update({"n": "source.n"})
        .execute()
    ),
}


@pytest.mark.parametrize("buckets", BUCKETS.values(), ids=BUCKETS)
@pytest.mark.parametrize("act", UPDATES.values(), ids=UPDATES)
def test_an_update_or_a_merge_keeps_values_of_a_column_that_the_table_does_not_know(
    tmp_path: Path, buckets: str, act: Act
) -> None:
    stale, _ = _opened_before(tmp_path, {"bucket": buckets})
    _require_kept(stale, act)


def test_an_update_of_a_table_with_deletion_vectors_keeps_values_of_a_column_that_it_does_not_know(
    tmp_path: Path,
) -> None:
    stale, _ = _opened_before(tmp_path, {"bucket": "2", "deletion-vectors.enabled": "true"})
    _require_kept(stale, UPDATES["set"])


WORK: dict[str, Act] = {
    "upsert": lambda table: table.upsert([{"k": 0 if _keeps_others(table) else 90, "n": 7}]),
    "upsert and compact": lambda table: [
        table.upsert([{"k": 3 if _keeps_others(table) else 90, "n": 7}]),
        table.compact(full=True),
    ],
    "stream": _streamed,
    "delete": lambda table: table.delete(where="k = 19"),
    "delete keys": lambda table: table.delete([19]),
    "insert": lambda table: table.insert([{"k": 90, "n": 1}]),
    "forget": lambda table: table.forget([{"k": 19}], dry_run=False),
    "restore": lambda table: table.restore_files(dry_run=False),
    "roll back": lambda table: _rolled_back(table),
}


@pytest.mark.parametrize("buckets", BUCKETS.values(), ids=BUCKETS)
@pytest.mark.parametrize("engine", ENGINES)
def test_other_work_keeps_values_of_a_column_that_the_table_does_not_know(
    tmp_path: Path, buckets: str, engine: str
) -> None:
    """By the merge engines that keep columns left out, rows without the column leave its values as well.

    Each work meets each kind of buckets, each engine and each changelog producer; deletes, which the other
    engines refuse, meet deduplicate.
    """
    place = list(BUCKETS.values()).index(buckets)
    shift = place + list(ENGINES).index(engine)
    for number, (name, act) in enumerate(WORK.items()):
        is_delete = name.startswith("delete")
        if engine != "deduplicate" if is_delete else (number + shift) % len(ENGINES):
            continue
        producer = ("none", "lookup")[(number + place) % 2]
        options = {"bucket": buckets, "changelog-producer": producer, **ENGINES[engine]}
        stale, _ = _opened_before(tmp_path / str(number), options)
        _require_kept(stale, act)


@pytest.mark.parametrize("buckets", BUCKETS.values(), ids=BUCKETS)
@pytest.mark.parametrize("engine", ENGINES)
def test_the_changelog_of_a_table_that_does_not_know_a_column_has_its_values(
    tmp_path: Path, buckets: str, engine: str
) -> None:
    options = {"bucket": buckets, "changelog-producer": "lookup", **ENGINES[engine]}
    stale, newer = _opened_before(tmp_path, options)
    newest = newer.latest_snapshot()
    assert newest is not None
    if engine == "deduplicate":
        stale.update(set={"n": 70}, where="k = 4")
    else:
        stale.upsert([{"k": 4, "n": 70}])
    changes = lsm.open_table(stale.location).changelog(after=newest.id).to_pylist()
    assert [(row["_row_kind"], row["n"], row["w"]) for row in changes] == [
        ("-U", 4, 4),
        ("+U", 70, 4),
    ]


APPENDED: dict[str, tuple[dict[str, str], Act]] = {
    "delete": (
        {"deletion-vectors.enabled": "true"},
        lambda table: table.delete(where="k < 5"),
    ),
    "delete keys": (
        {"deletion-vectors.enabled": "true"},
        lambda table: table.delete([{"k": key} for key in range(5)]),
    ),
    "columns": (
        {"row-tracking.enabled": "true", "data-evolution.enabled": "true"},
        lambda table: table.update_columns(_new_values(table, ["n"])),
    ),
    "all known columns": (
        {"row-tracking.enabled": "true", "data-evolution.enabled": "true"},
        lambda table: table.update_columns(_new_values(table, ["k", "v", "n"])),
    ),
    "compact": (
        {"row-tracking.enabled": "true", "data-evolution.enabled": "true"},
        lambda table: table.compact(full=True),
    ),
}


def _new_values(table: lsm.Table, columns: list[str]) -> Any:
    return table.to_arrow(["_ROW_ID", *columns])


@pytest.mark.parametrize("name", APPENDED)
def test_work_on_an_append_table_keeps_values_of_a_column_that_the_table_does_not_know(
    tmp_path: Path, name: str
) -> None:
    options, act = APPENDED[name]
    stale, newer = _opened_before(tmp_path, {"bucket": "-1", **options}, keyed=False)
    if "data-evolution.enabled" in options:
        ids = newer.to_arrow(["_ROW_ID", "k"]).to_pylist()
        newer.update_columns([{"_ROW_ID": row["_ROW_ID"], "w": row["k"]} for row in ids])
    _require_kept(stale, act)


def test_a_column_that_comes_while_an_update_looks_at_rows_keeps_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lsm.open_catalog(tmp_path) as catalog:
        table = catalog.create_table("db.t", {"k": int, "n": int}, primary_key="k")
    table.upsert([{"k": key, "n": key} for key in range(4)])
    staged, tries = merge.staged, []

    def overtaken(session: Any, *args: Any, **others: Any) -> Any:
        tries.append(session.schema.id)
        if len(tries) == 1:
            newer = lsm.open_table(table.location)
            newer.alter(lsm.AddColumn("w", "INT"))
            newer.upsert([{"k": 1, "n": 1, "w": 9}])
        return staged(session, *args, **others)

    monkeypatch.setattr(merge, "staged", overtaken)
    table.update(set={"n": "n + 10"})
    assert tries == [0, 1]
    rows = lsm.open_table(table.location).to_arrow().sort_by("k").to_pylist()
    assert rows[1] == {"k": 1, "n": 11, "w": 9}
    assert [row["n"] for row in rows] == [10, 11, 12, 13]


def test_an_update_of_a_column_that_was_renamed_meanwhile_is_refused(tmp_path: Path) -> None:
    stale, _ = _opened_before(tmp_path, {"bucket": "1"}, column="m")
    newest, before = stale.latest_snapshot(), _values(stale)
    with pytest.raises(lsm.NotFoundError, match="no column 'n'; there are k, v, m, w"):
        stale.update(set={"n": 1})
    assert stale.latest_snapshot() == newest
    assert _values(stale) == before


def test_a_planned_column_does_not_take_the_place_of_one_that_others_added(tmp_path: Path) -> None:
    stale, _ = _opened_before(tmp_path, {"bucket": "1"})
    other = lsm.open_table(stale.location).altering(lsm.AddColumn("x", "INT"))
    lsm.open_table(stale.location).alter(lsm.AddColumn("y", "INT"))
    with pytest.raises(lsm.CommitConflictError):
        other.update(set={"x": 1})
    _require_kept(stale, UPDATES["set"])
