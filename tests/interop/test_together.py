"""This engine and the real clients on one table, turn by turn: each goes on where another stopped."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lsm_engine as lsm
from tests.interop.canonical import canonical_rows, difference
from tests.interop.clients import Client
from tests.interop.our_tables import NASTY, NUMBERS, create, long_life, numbers, rows_of
from tests.interop.test_fixtures_read import file_facts

pytestmark = pytest.mark.interop

SPELLED = [("k", "BIGINT NOT NULL"), ("v", "STRING"), ("n", "INT"), ("x", "DOUBLE")]


def assert_all_read_alike(path: Path | str, *clients: Client) -> None:
    """Every client's rows are ours, and the table is sound."""
    table = lsm.open_table(str(path))
    assert table.verify().problems == ()
    ours = rows_of(table)
    for client in clients:
        assert (client.name, difference(client.read_rows(path), ours)) == (client.name, "")


def our_files(path: Path | str) -> list[dict[str, Any]]:
    """Live files as our system table has them, in the clients' spelling."""
    return [file_facts(row) for row in lsm.open_table(str(path)).system("files").to_pylist()]


def their_files(client: Client, path: Path | str) -> list[dict[str, Any]]:
    """Live files as a client has them."""
    return [
        {name: value for name, value in file.items() if name != "partition_hex"}
        for file in client.files(path)
    ]


# ---- one compacts what the other wrote


def test_java_compacts_ours_and_we_go_on(java: Client, rust: Client, tmp_path: Path) -> None:
    options = {"bucket": "2", "target-file-size": "4 kb"}
    table = create(tmp_path, NUMBERS, primary_key=["k"], options=options)
    path = table.location
    for start in (0, 50, 100):
        table.upsert(numbers(range(start, start + 80), f"{start}-"))
    table.delete(numbers(range(60, 90)))
    before = rows_of(table)
    assert java.compact(path, full=True) is not None
    assert {file["level"] for file in our_files(path)} == {5}
    assert difference(rows_of(table), before) == ""
    assert difference(our_files(path), their_files(java, path)) == ""

    table.upsert(numbers(range(70, 75), "back-"))
    table.delete(numbers(range(10)))
    assert_all_read_alike(path, java, rust)
    assert len(rows_of(table)) == len(before) - 10 + 5
    # Sequence numbers go on above Java's, so that what is written later wins.
    assert table.scan(columns=["v"], where=pc.field("k") == 71).to_arrow().to_pylist() == [
        {"v": "back-71"}
    ]
    assert table.compact(full=True) is not None
    assert_all_read_alike(path, java, rust)
    assert java.write(path, numbers([1, 2]), kinds=["+I", "-D"]) is not None
    assert_all_read_alike(path, java, rust)


def test_we_compact_javas_and_java_goes_on(java: Client, tmp_path: Path) -> None:
    options = {"bucket": "2", "target-file-size": "4 kb", "num-sorted-run.compaction-trigger": "4"}
    path = java.create(tmp_path, "db.t", SPELLED, primary_key=["k"], options=options)
    for start in (0, 50, 100):
        java.write(path, numbers(range(start, start + 80), f"{start}-"))
    java.compact(path, full=True)
    java.write(path, numbers(range(0, 180, 3)), kinds=["-D"] * 60)
    java.write(path, numbers(range(0, 30, 6), "back-"), kinds=["+U"] * 5)
    table = lsm.open_table(str(path))
    before = rows_of(table)
    assert_all_read_alike(path, java)

    assert table.compact(full=True) is not None
    assert {file["level"] for file in their_files(java, path)} == {4}
    assert sum(file["deleteRows"] for file in their_files(java, path)) == 0
    assert difference(java.read_rows(path), before) == ""
    assert difference(our_files(path), their_files(java, path)) == ""

    java.write(path, numbers(range(5), "on-"), kinds=["+U"] * 4 + ["-D"])
    assert_all_read_alike(path, java)
    java.compact(path, full=True)
    assert_all_read_alike(path, java)
    found = java.lookup(path, pa.table({"k": pa.array([1, 4, 170], pa.int64())}))
    ours = {row["k"]: row for row in rows_of(table)}
    assert found == [ours.get(1), None, ours.get(170)]


@pytest.mark.parametrize("name", ["pypaimon", "rust"])
def test_we_compact_what_python_and_rust_wrote(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    client: Client = request.getfixturevalue(name)
    options = {"bucket": "2"}
    path = client.create(tmp_path, "db.t", SPELLED, primary_key=["k"], options=options)
    for start in (0, 50, 100):
        client.write(path, numbers(range(start, start + 80), f"{start}-"))
    client.create_tag(path, "theirs")
    table = lsm.open_table(str(path))
    table.delete(numbers(range(40, 60)))
    assert_all_read_alike(path, client)
    assert table.compact(full=True) is not None
    assert_all_read_alike(path, client)
    client.write(path, numbers(range(55, 65), "on-"))
    assert_all_read_alike(path, client)
    table.upsert(numbers(range(64, 66), "ours-"))
    assert_all_read_alike(path, client)
    table.expire_snapshots(retain_max=1, older_than="0 s")
    assert_all_read_alike(path, client)
    assert difference(client.read_rows(path, tag="theirs"), rows_of(table, tag="theirs")) == ""


def test_java_expires_ours_and_we_expire_javas(java: Client, tmp_path: Path) -> None:
    table = create(tmp_path, NUMBERS, primary_key=["k"])
    path = table.location
    for turn in range(4):
        table.upsert(numbers(range(turn * 10, turn * 10 + 20), f"{turn}-"))
    table.create_tag("two", 2)
    table.compact(full=True)
    assert java.expire(path, retain_max=2) > 0
    assert_all_read_alike(path, java)
    assert difference(java.read_rows(path, tag="two"), rows_of(table, tag="two")) == ""
    with pytest.raises(lsm.ExpiredError):
        table.scan(snapshot_id=1)
    java.write(path, numbers(range(5)))
    java.create_tag(path, "javas")
    java.write(path, numbers(range(5, 9)))
    java.compact(path, full=True)
    table.expire_snapshots(retain_max=1, older_than="0 s")
    table.delete_tag("two")
    assert_all_read_alike(path, java)
    assert difference(java.read_rows(path, tag="javas"), rows_of(table, tag="javas")) == ""


def test_tags_are_the_same_to_all(
    java: Client, rust: Client, pypaimon: Client, tmp_path: Path
) -> None:
    table = create(tmp_path, NUMBERS, primary_key=["k"])
    path = table.location
    clients = (java, rust, pypaimon)
    for client in clients:
        table.upsert(numbers(range(3), client.name))
        client.create_tag(path, client.name)
    table.create_tag("ours", 2, retained="7 d")
    assert [tag.name for tag in table.tags()] == ["java", "ours", "rust", "pypaimon"]
    for tag in ("java", "rust", "pypaimon", "ours"):
        for client in clients:
            wanted = rows_of(table, tag=tag)
            assert difference(client.read_rows(path, tag=tag), wanted) == ""


# ---- turn by turn


def changes(turn: int, rng: random.Random) -> tuple[pa.Table, list[str]]:
    """Some rows of one turn and what they do; no key twice."""
    keys = rng.sample(range(120), 25)
    kinds = [rng.choice(("+I", "+U", "-D", "+U", "+I")) for _ in keys]
    return numbers(keys, f"turn{turn}-"), kinds


def with_kinds(rows: pa.Table, kinds: list[str]) -> pa.Table:
    """Rows as our upsert takes them, each with what it does."""
    return rows.append_column("_row_kind", pa.array(kinds))


class Ledger(dict[int, dict[str, Any]]):
    """What the table has to hold: the specification, as a dict."""

    def apply(self, rows: pa.Table, kinds: list[str]) -> None:
        for row, kind in zip(canonical_rows(rows), kinds, strict=True):
            if kind == "-D":
                self.pop(row["k"], None)
            else:
                self[row["k"]] = row

    def apply_if_newer(self, rows: pa.Table, kinds: list[str], newest: dict[int, int]) -> None:
        """The same with `n` as sequence field: a row counts unless a newer one was there."""
        for row, kind in zip(canonical_rows(rows), kinds, strict=True):
            key = row["k"]
            if row["n"] < newest.get(key, -1):
                continue
            newest[key] = row["n"]
            if kind == "-D":
                self.pop(key, None)
            else:
                self[key] = row


def turns(count: int) -> Iterator[tuple[int, str]]:
    """Who does what: two writers and two compactors, one after the other."""
    steps = ("java writes", "we write", "we compact", "java compacts")
    for turn in range(count):
        yield turn, steps[turn % 4]


@pytest.mark.parametrize(
    ("count", "seed"),
    [(20, 1), *(pytest.param(40, seed, marks=pytest.mark.interop_full) for seed in (2, 3))],
)
@pytest.mark.parametrize(
    "full",
    [False, pytest.param(True, marks=pytest.mark.interop_full)],
    ids=["as-due", "fully"],
)
def test_turn_by_turn(count: int, seed: int, *, full: bool, java: Client, tmp_path: Path) -> None:
    rng = random.Random(seed)
    options = {"bucket": "2", "num-sorted-run.compaction-trigger": "3", "write-only": "true"}
    table = create(tmp_path, NUMBERS, primary_key=["k"], options=options)
    path = table.location
    ledger = Ledger()
    for turn, step in turns(count):
        rows, kinds = changes(turn, rng)
        if step == "java writes":
            java.write(path, rows, kinds=kinds)
            ledger.apply(rows, kinds)
        elif step == "we write":
            table.upsert(with_kinds(rows, kinds))
            ledger.apply(rows, kinds)
        elif step == "we compact":
            table.compact(full=full)
        else:
            java.compact(path, full=full)
        wanted = list(ledger.values())
        assert (turn, step, difference(rows_of(table), wanted)) == (turn, step, "")
        assert (turn, step, difference(java.read_rows(path), wanted)) == (turn, step, "")
    assert difference(our_files(path), their_files(java, path)) == ""
    assert table.verify().problems == ()


@pytest.mark.parametrize(
    ("count", "seed"),
    [(20, 4), *(pytest.param(40, seed, marks=pytest.mark.interop_full) for seed in (5, 6))],
)
def test_turn_by_turn_with_a_sequence_field(
    count: int, seed: int, java: Client, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    options = {
        "bucket": "1", "num-sorted-run.compaction-trigger": "3", "write-only": "true",
        "sequence.field": "n",
    }  # fmt: skip
    table = create(tmp_path, NUMBERS, primary_key=["k"], options=options)
    path = table.location
    ledger, newest = Ledger(), {}
    for turn, step in turns(count):
        rows, kinds = changes(turn, rng)
        order = pa.array([rng.randrange(turn + 3) for _ in kinds], pa.int32())
        rows = rows.set_column(2, "n", order)
        if step == "java writes":
            java.write(path, rows, kinds=kinds)
        elif step == "we write":
            table.upsert(with_kinds(rows, kinds))
        elif step == "we compact":
            table.compact(full=turn % 8 == 2)
        else:
            java.compact(path, full=turn % 8 == 7)
        if "write" in step:
            ledger.apply_if_newer(rows, kinds, newest)
        # A full compaction forgets deleted keys, and with them how new they were.
        if "compact" in step and turn % 8 in (2, 7):
            newest = {key: number for key, number in newest.items() if key in ledger}
        wanted = list(ledger.values())
        assert (turn, step, difference(rows_of(table), wanted)) == (turn, step, "")
        assert (turn, step, difference(java.read_rows(path), wanted)) == (turn, step, "")


# ---- the same decisions


def shape(files: list[dict[str, Any]]) -> list[tuple[int, int, int, int]]:
    """What compactions leave, whoever did them: file names aside."""
    return sorted((file["level"], file["rows"], file["minSeq"], file["maxSeq"]) for file in files)


@pytest.mark.parametrize(
    ("trigger", "sizes"),
    [
        (3, [200, 20, 20, 20, 5, 5, 60, 1, 1, 1]),
        pytest.param(2, [10] * 8, marks=pytest.mark.interop_full),
        pytest.param(5, [400, *[25] * 12], marks=pytest.mark.interop_full),
        pytest.param(4, [1, 2, 4, 8, 16, 32, 64, 128, 256], marks=pytest.mark.interop_full),
    ],
)
def test_picks_are_those_of_java(
    trigger: int, sizes: list[int], java: Client, tmp_path: Path
) -> None:
    """Two tables with equal rows: after each write both have the same runs on the same levels."""
    options = {
        "bucket": "1",
        "num-sorted-run.compaction-trigger": str(trigger),
        "write-only": "true",
        "file.compression": "zstd",  # picks go by sizes: ours by default are larger for few rows
    }
    ours = create(tmp_path, NUMBERS, primary_key=["k"], options=options)
    theirs = java.create(tmp_path, "db.other", SPELLED, primary_key=["k"], options=options)
    for turn, size in enumerate(sizes):
        rows = numbers(range(turn * 3, turn * 3 + size), f"{turn}-")
        ours.upsert(rows)
        java.write(theirs, rows)
        ours.compact()
        java.compact(theirs, full=False)
        assert (turn, shape(our_files(ours.location))) == (turn, shape(their_files(java, theirs)))
    assert difference(rows_of(ours), java.read_rows(theirs)) == ""


def test_live_files_are_the_same_to_all(
    java: Client, rust: Client, pypaimon: Client, tmp_path: Path
) -> None:
    fields = [("p", pa.string()), ("k", pa.int32())]
    table = create(
        tmp_path, fields, primary_key=["p", "k"], partitioned_by=["p"], options={"bucket": "2"}
    )
    table.upsert([{"p": p, "k": k} for p in NASTY for k in range(4)])
    table.compact(full=True, partitions=[{"p": NASTY[1]}])
    table.delete([{"p": NASTY[2], "k": 1}])
    for client in (java, rust, pypaimon):
        found = difference(their_files(client, table.location), our_files(table.location))
        assert (client.name, found) == (client.name, "")


def test_lookups_of_java_find_what_we_wrote(java: Client, tmp_path: Path) -> None:
    """It knows no sequence fields there, and looks through all levels for the newest."""
    table = long_life(tmp_path)
    keys = numbers(range(290, 310))
    ours = {row["k"]: row for row in rows_of(table)}
    looked_up = java.lookup(table.location, keys.select(["k"]))
    assert looked_up == [ours.get(key) for key in keys.column("k").to_pylist()]
    assert None in looked_up
    assert any(looked_up)
