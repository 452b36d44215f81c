"""Every table that a real client wrote is read as that client read it, or refused by name.

Needs no client. A fixture may neither be missing from the lists here nor be forgotten.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lsm_engine as lsm
from lsm_engine.changes.splits import ROW_KIND, SNAPSHOT_ID, merged_delta, read_changes
from lsm_engine.options import core_options
from lsm_engine.options.modes import ChangelogProducer, CommitKind
from lsm_engine.table.references import References
from tests.interop.canonical import Row, canonical_rows, difference, exact_nanos
from tests.interop.fixture_tables import FixtureTable, on_disk

JAVA = "java-0.9.0"
PYPAIMON = "pypaimon-2.1.0"
HAND = "hand-written"

# What is read; writing some of them is refused.
READ = {
    HAND: ("deletion_vector", "pk_avro", "pk_parquet", "pk_parquet_densestats", "pk_parquet_thin"),
    JAVA: (
        "aggregation", "append_avro", "append_bucketed", "append_null_wide_bucket", "append_unaware", "changelog_decoupled",
        "changelog_full_compaction", "changelog_input", "changelog_lookup", "changelog_none",
        "dedup_sequence", "deletion_vectors", "empty_table", "file_index", "first_row", "levels", "nested_types", "partial_update", "partial_update_seqgroup", "pk_basic",
        "pk_bucket_key_subset", "pk_dynamic_bucket", "pk_only_keys", "pk_partition_escape",
        "pk_partition_types_nonlegacy", "pk_partitioned", "rowkind_field", "schema_evolution",
        "stats_none", "stats_truncate", "types_avro", "types_parquet", "types_ts_precisions",
    ),
    PYPAIMON: (
        "aggregation", "append_bucketed", "append_unaware", "changelog_input", "dedup_sequence", "overwrite",
        "pk_basic", "pk_composite", "pk_default_bucket", "pk_postpone", "rowkind_field", "types_orc", "types_parquet",
    ),
}  # fmt: skip
READABLE = [
    FixtureTable(writer=writer, name=name) for writer, names in READ.items() for name in names
]
# Tables whose changes, index files or long-lived changelogs writers have to go on with.
GONE_ON_WITH = [
    FixtureTable(writer=HAND, name="deletion_vector"),
    FixtureTable(writer=JAVA, name="deletion_vectors"),
    FixtureTable(writer=JAVA, name="changelog_full_compaction"),
    FixtureTable(writer=JAVA, name="changelog_input"),
    FixtureTable(writer=JAVA, name="changelog_lookup"),
    FixtureTable(writer=JAVA, name="changelog_decoupled"),
    FixtureTable(writer=PYPAIMON, name="changelog_input"),
]
each_readable = pytest.mark.parametrize(
    "fixture", READABLE, ids=[f"{fixture.writer}-{fixture.name}" for fixture in READABLE]
)


def opened(fixture: FixtureTable) -> lsm.Table:
    return lsm.open_table(str(fixture.table))


def wanted_rows(fixture: FixtureTable, rows: list[Row]) -> list[Row]:
    """The rows that are right. One writer has a defect of which its own readers' answer tells.

    Java 0.9.0 stores a ROW of nulls as such and reads it back as NULL; the file's levels say what it
    is, and both other clients read it so.
    """
    if fixture.name != "nested_types":
        return rows
    nulls = {"a": None, "b": None}
    return [row | {"rw": nulls} if row["k"] == 3 else row for row in rows]


def states(fixture: FixtureTable) -> Iterator[tuple[str, dict[str, Any], list[Row]]]:
    """Each state that is there: how to ask for it, and its rows."""
    expected = fixture.expected_here
    yield "head", {}, expected["rows"]
    for number, snapshot in expected["snapshots"].items():
        yield f"snapshot {number}", {"snapshot_id": int(number)}, snapshot["rows"]
    for tag, tagged in expected["tags"].items():
        yield f"tag {tag}", {"tag": tag}, tagged["rows"]


def test_every_fixture_is_read() -> None:
    assert len(set(READABLE)) == len(READABLE)
    assert set(READABLE) == set(on_disk())
    assert set(GONE_ON_WITH) <= set(READABLE)


@each_readable
def test_rows_at_head_and_at_every_snapshot_and_tag(fixture: FixtureTable) -> None:
    table = opened(fixture)
    for name, asked, rows in states(fixture):
        scan = table.scan(**asked)
        got = scan.to_arrow()
        assert (name, difference(canonical_rows(got), wanted_rows(fixture, rows))) == (name, "")
        assert (name, scan.count()) == (name, len(rows))
        assert got.schema == scan.schema


def told(changes: pa.Table) -> list[list[Any]]:
    """Changes as the fixtures spell them: [kind, row]."""
    rows = canonical_rows(changes.drop_columns([SNAPSHOT_ID, ROW_KIND]))
    return [list(one) for one in zip(changes.column(ROW_KIND).to_pylist(), rows, strict=True)]


@each_readable
def test_changelog_of_every_snapshot(fixture: FixtureTable) -> None:
    """In the very order that Java read it."""
    table = opened(fixture)
    wanted = fixture.expected_here.get("changelog", {})
    keeps_one = table.options[core_options.CHANGELOG_PRODUCER] is not ChangelogProducer.NONE
    assert keeps_one or not wanted
    for snapshot in table.snapshots() if keeps_one and "changelog" in fixture.expected_here else []:
        got = told(table.changelog(snapshot.id - 1, snapshot.id))
        assert (snapshot.id, got) == (snapshot.id, wanted.get(str(snapshot.id), []))


@each_readable
def test_delta_of_every_snapshot(fixture: FixtureTable) -> None:
    """The rows of all new files; those of APPEND snapshots are what `mode="delta"` gives."""
    table = opened(fixture)
    deltas = fixture.expected_here.get("delta", {})
    for snapshot in table.snapshots() if deltas else []:
        wanted = deltas.get(str(snapshot.id), [])
        if fixture.name == "nested_types":  # see wanted_rows
            wanted = [[kind, *wanted_rows(fixture, [row])] for kind, row in wanted]
        changes = table.changes(snapshot.id - 1, snapshot.id, mode="delta")
        if snapshot.commit_kind is CommitKind.APPEND:
            assert difference(told(changes.to_arrow()), wanted) == ""
        found = [
            batch
            for split in merged_delta(
                table.session,
                snapshot.id,
                list(References(table.session).delta_entries([snapshot])),
            )
            for batch in read_changes(
                table.session.context({file.schema_id for file in split.all_files}),
                changes.rows,
                split,
            )
        ]
        got = told(pa.Table.from_batches(found, schema=None if found else changes.schema))
        assert (snapshot.id, difference(got, wanted)) == (snapshot.id, "")


def test_changelogs_that_outlived_their_snapshots() -> None:
    """Snapshots 1 to 5 are gone, their changelogs are not; nothing is missing where they meet."""
    fixture = FixtureTable(writer=JAVA, name="changelog_decoupled")
    table = opened(fixture)
    assert [snapshot.id for snapshot in table.snapshots()] == [6]
    written = [step["rows"] for step in fixture.meta["log"] if step["op"] == "write"]
    assert len(written) == 5
    for number, rows in enumerate(written, 1):
        assert difference(told(table.changelog(number - 1, number)), rows) == ""
    assert difference(told(table.changelog()), [row for rows in written for row in rows]) == ""
    with pytest.raises(lsm.ExpiredError):
        table.changelog(mode="delta")


def test_nothing_of_nanoseconds_is_lost() -> None:
    fixture = FixtureTable(writer=JAVA, name="types_ts_precisions")
    table = opened(fixture).scan().to_arrow()
    for key, columns in fixture.expected_here["exact_nanos"].items():
        row = table.column("k").to_pylist().index(int(key))
        for column, nanos in columns.items():
            assert (column, exact_nanos(table, column)[row]) == (column, nanos)


@each_readable
def test_projections_are_columns_of_the_whole(fixture: FixtureTable) -> None:
    table = opened(fixture)
    whole = table.scan().to_arrow()
    names = whole.column_names
    for chosen in [[name] for name in names] + [names[::-1], names[1:3]]:
        got = table.scan(columns=chosen).to_arrow()
        assert got.column_names == chosen
        assert difference(canonical_rows(got), canonical_rows(whole.select(chosen))) == ""


def filters(column: pa.ChunkedArray, name: str) -> Iterator[pc.Expression]:
    """Filters on one column: some that match its values, on either side of them, and none."""
    field = pc.field(name)
    yield field.is_null()
    yield field.is_valid()
    if pa.types.is_nested(column.type):
        return
    distinct = pc.drop_null(pc.unique(column))
    if len(distinct):
        value = distinct[len(distinct) // 2]
        yield field == value
        yield field >= value
        yield (field < value) | (field != distinct[0])
        yield field.isin(distinct.slice(len(distinct) // 2, 2))


@each_readable
def test_filters_give_what_filtering_afterwards_does(fixture: FixtureTable) -> None:
    table = opened(fixture)
    whole = table.scan().to_arrow()
    for column in whole.column_names:
        for where in filters(whole.column(column), column):
            got = canonical_rows(table.scan(where=where).to_arrow())
            wrong = difference(got, canonical_rows(whole.filter(where)))
            assert (str(where), wrong) == (str(where), "")


def test_filter_of_two_columns_with_a_projection_that_has_neither() -> None:
    table = opened(FixtureTable(writer=JAVA, name="pk_partitioned"))
    whole = table.scan().to_arrow()
    first, second = whole.column_names[-2:]
    where = pc.field(first).is_valid() & (pc.field(second) != whole.column(second)[0])
    got = table.scan(columns=whole.column_names[:1], where=where).to_arrow()
    assert (
        difference(
            canonical_rows(got), canonical_rows(whole.filter(where).select(got.column_names))
        )
        == ""
    )


@each_readable
def test_past_is_read_with_its_own_columns(fixture: FixtureTable) -> None:
    table = opened(fixture)
    schemas = {row["schema_id"]: row for row in table.system("schemas").to_pylist()}
    for snapshot in table.snapshots():
        scan = table.scan(snapshot_id=snapshot.id)
        fields = schemas[snapshot.schema_id]["fields"].split(", ")
        assert scan.schema.names[0] == fields[0].split(" ")[0]
        assert (
            difference(
                canonical_rows(table.scan(as_of_millis=snapshot.time_millis).to_arrow()),
                canonical_rows(
                    table.scan(snapshot_id=last_at(table, snapshot.time_millis)).to_arrow()
                ),
            )
            == ""
        )


def last_at(table: lsm.Table, millis: int) -> int:
    """The newest snapshot that is not younger than a time."""
    return max(snapshot.id for snapshot in table.snapshots() if snapshot.time_millis <= millis)


@each_readable
def test_system_tables_and_verify(fixture: FixtureTable) -> None:
    table = opened(fixture)
    expected = fixture.expected_here
    assert table.verify().problems == ()
    assert dict(table.options.texts) == dict(
        zip(
            *(table.system("options").column(name).to_pylist() for name in ("key", "value")),
            strict=True,
        )
    )
    for name in ("manifests", "manifest_lists"):
        assert (table.system(name).num_rows > 0) == (fixture.name != "empty_table")
    ids = table.system("snapshots").column("snapshot_id").to_pylist()
    if expected["snapshots"]:
        assert ids == sorted(int(number) for number in expected["snapshots"])
    assert sorted(table.system("tags").column("tag_name").to_pylist()) == sorted(expected["tags"])
    if "live_files" in expected:
        assert difference(map(file_facts, table.system("files").to_pylist()), [
            {key: value for key, value in file.items() if key != "partition_hex"}
            for file in expected["live_files"]
        ]) == ""  # fmt: skip
    for row in table.system("files").to_pylist():
        assert Path(fixture.table, row["file_path"]).stat().st_size == row["file_size_in_bytes"]


def file_facts(row: dict[str, Any]) -> dict[str, Any]:
    """A row of our `files` as the fixtures' live_files spell it."""
    return {
        "bucket": row["bucket"],
        "level": row["level"],
        "file": Path(row["file_path"]).name,
        "rows": row["record_count"],
        "deleteRows": row["delete_row_count"] or 0,
        "minSeq": row["min_sequence_number"],
        "maxSeq": row["max_sequence_number"],
    }


@pytest.mark.parametrize(
    "fixture", GONE_ON_WITH, ids=[f"{one.writer}-{one.name}" for one in GONE_ON_WITH]
)
def test_tables_of_others_are_gone_on_with(fixture: FixtureTable, tmp_path: Path) -> None:
    table = lsm.open_table(str(shutil.copytree(fixture.table, tmp_path / "table")))
    rows = table.scan().to_arrow().sort_by(table.schema.primary_keys[0])
    gone, changed = rows.slice(0, 2), rows.slice(2)
    base = table.latest_snapshot()
    assert base is not None
    table.delete(gone)
    table.upsert(changed)
    table.compact(full=True)
    wanted = canonical_rows(changed)
    assert difference(canonical_rows(table.scan().to_arrow()), wanted) == ""
    assert table.verify().problems == ()
    changes = table.changelog(base.id)
    assert changes.num_rows > 0
    assert changes.column(SNAPSHOT_ID)[0].as_py() > base.id
    table.expire_snapshots(retain_max=1, older_than="0 s")
    assert table.verify().problems == ()
    assert difference(canonical_rows(table.scan().to_arrow()), wanted) == ""


def contents(table: Path) -> dict[str, int]:
    """Every file of a table with its size."""
    return {str(path): path.stat().st_size for path in table.rglob("*") if path.is_file()}


def test_files_in_legacy_directories_are_read_compacted_and_expired(tmp_path: Path) -> None:
    """A client that ignores partition.legacy-name = false has put them there (decisions/0007)."""
    fixture = FixtureTable(writer=JAVA, name="pk_partition_types_nonlegacy")
    copy = Path(shutil.copytree(fixture.table, tmp_path / "table"))
    table = lsm.open_table(str(copy))
    rows = table.scan().to_arrow()
    old = {copy / path for path in table.system("files").column("file_path").to_pylist()}
    table.upsert(rows)
    assert len(table.system("files")) == 2 * len(old)
    table.compact(full=True)
    assert difference(canonical_rows(table.scan().to_arrow()), fixture.expected_here["rows"]) == ""
    assert table.verify().problems == ()
    table.expire_snapshots(retain_max=1, older_than="0 s")
    assert table.verify().problems == ()
    assert not any(path.exists() for path in old)
    assert difference(canonical_rows(table.scan().to_arrow()), fixture.expected_here["rows"]) == ""


BUCKETS = [
    FixtureTable(writer=JAVA, name="append_avro"),
    FixtureTable(writer=JAVA, name="append_bucketed"),
    FixtureTable(writer=JAVA, name="append_null_wide_bucket"),
    FixtureTable(writer=JAVA, name="append_unaware"),
    FixtureTable(writer=PYPAIMON, name="append_bucketed"),
    FixtureTable(writer=PYPAIMON, name="append_unaware"),
    FixtureTable(writer=JAVA, name="pk_dynamic_bucket"),
    FixtureTable(writer=PYPAIMON, name="pk_default_bucket"),
]


@pytest.mark.parametrize(
    "fixture", BUCKETS, ids=[f"{fixture.writer}-{fixture.name}" for fixture in BUCKETS]
)
def test_we_write_on_in_buckets_of_every_kind(fixture: FixtureTable, tmp_path: Path) -> None:
    """All rows once more: those without a key come twice, the others land where they were."""
    copy = Path(shutil.copytree(fixture.table, tmp_path / "table"))
    table = lsm.open_table(str(copy))
    rows = table.scan().to_arrow()
    twice = not table.schema.has_primary_key
    made = table.append(rows) if twice else table.upsert(rows)
    assert made is not None
    wanted = fixture.expected_here["rows"] * (2 if twice else 1)
    assert difference(canonical_rows(table.scan().to_arrow()), wanted) == ""
    table.compact(full=True)
    assert difference(canonical_rows(table.scan().to_arrow()), wanted) == ""
    assert table.verify().problems == ()
    if table.schema.bucket_count > 0:
        table.rescale(table.schema.bucket_count + 2)
        assert difference(canonical_rows(table.scan().to_arrow()), wanted) == ""
    table.overwrite(rows)
    assert difference(canonical_rows(table.scan().to_arrow()), fixture.expected_here["rows"]) == ""
    assert table.verify().problems == ()


def test_rows_that_wait_in_a_clients_table_come_to_their_buckets(tmp_path: Path) -> None:
    fixture = FixtureTable(writer=PYPAIMON, name="pk_postpone")
    copy = Path(shutil.copytree(fixture.table, tmp_path / "table"))
    table = lsm.open_table(str(copy))
    assert table.scan().to_arrow().num_rows == 0
    table.compact()
    written = [{"k": 1, "v": "a", "n": 1}, {"k": 2, "v": "b", "n": 2}]
    assert difference(canonical_rows(table.scan().to_arrow()), written) == ""
    table.upsert([{"k": 2, "v": "c", "n": 3}])
    assert table.lookup([{"k": 2}]).column("v").to_pylist() == ["c"]
    assert table.verify().problems == ()
