"""`sequence.snapshot-ordering`: the row of the later snapshot is the newer one, whoever wrote first."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import InvalidOptionError, UnsupportedError
from lsm_engine.commit.commit import propose
from lsm_engine.dml.write import stage
from lsm_engine.format.commit_message import CommitMessage
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.maintenance.rollback import restore
from lsm_engine.options.modes import FileSource
from lsm_engine.planning.proposal import CommitIdentity, Proposal
from lsm_engine.table.incoming import conformed, open_rows
from lsm_engine.table.staging import staging_on
from lsm_engine.types.table_schema import SEQUENCE_NUMBER
from lsm_engine.write.writers import TableWriter
from tests.model.invariants import check_invariants
from tests.model.stored_table import StoredTable
from tests.unit.table.history_tables import Story

ORDERED = {"sequence.snapshot-ordering": "true", "write-only": "true"}
COUNTS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


class Race:
    """Writers that prepare their rows side by side, and commit when they are told to."""

    def __init__(self, columns: pa.Schema | None = None, **options: str) -> None:
        given = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
        kwargs: dict[str, Any] = {} if columns is None else {"columns": columns}
        self.story = Story(options={**ORDERED, **given}, **kwargs)
        self.table = self.story.table

    def prepare(self, *rows: Any, deletes: bool = False) -> "Prepared":
        session = self.table.session
        base = session.snapshots.latest()
        made = [{"id": key} if deletes else {"id": key, "v": value} for key, value in rows]
        return Prepared(self, base, stage(session, made, base, deletes=deletes))

    @property
    def found(self) -> dict[int, Any]:
        scanned = {row["id"]: row["v"] for row in self.table.scan().to_arrow().to_pylist()}
        keys = list(range(12))
        asked = self.table.lookup([{"id": key} for key in keys]).to_pylist()
        looked_up = {row["id"]: row["v"] for row in asked if row["_found"]}
        assert looked_up == {key: scanned[key] for key in keys if key in scanned}
        return scanned

    def numbers(self) -> list[tuple[int, int, int]]:
        """Level, least and greatest number of each live file."""
        base = self.table.session.snapshots.latest()
        assert base is not None
        files = [entry.file for entry in self.table.session.live_entries(base)]
        return sorted(
            (file.level, file.min_sequence_number, file.max_sequence_number) for file in files
        )


class Prepared:
    def __init__(self, race: Race, base: Snapshot | None, messages: list[CommitMessage]) -> None:
        self.race, self.base, self.messages = race, base, messages

    def land(self) -> int:
        identity = CommitIdentity(commit_user="writer")
        session = self.race.table.session
        made = propose(
            session,
            Proposal(identity=identity, messages=tuple(self.messages), planned_on=self.base),
        )
        assert made is not None
        return made.id


def files_of(messages: list[CommitMessage]) -> list[str]:
    return [file.file_name for message in messages for file in message.data.new_files]


def test_of_two_writers_that_race_the_later_commit_wins() -> None:
    race = Race()
    slow = race.prepare((1, "slow"), (2, "slow"))
    quick = [race.prepare((1, f"quick {at}"), (3, "quick")) for at in range(4)]
    for each in quick:
        each.land()
    slow.land()
    race.story.put(k9="after")
    assert race.found == {1: "slow", 2: "slow", 3: "quick", 9: "after"}
    assert race.numbers() == [(0, at, at) for at in range(1, 7)]
    race.table.compact(full=True)
    assert race.found == {1: "slow", 2: "slow", 3: "quick", 9: "after"}
    assert race.numbers() == [(5, 4, 6)]


def test_a_lost_race_leaves_the_files_as_they_were_written() -> None:
    race = Race()
    slow = race.prepare((1, "slow"))
    race.prepare((1, "quick")).land()
    slow.land()
    names = {entry.file.file_name for entry in race.table.session.live_entries(newest(race))}
    assert set(files_of(slow.messages)) <= names


def newest(race: Race) -> Snapshot:
    base = race.table.session.snapshots.latest()
    assert base is not None
    return base


def test_a_delete_of_the_later_snapshot_takes_the_key_away() -> None:
    race = Race()
    gone = race.prepare((1, None), deletes=True)
    for at in range(3):
        race.prepare((1, f"row {at}"), (2, "stays")).land()
    gone.land()
    assert race.found == {2: "stays"}
    back = race.prepare((1, "back"))
    race.table.compact(full=True)
    assert race.found == {2: "stays"}
    back.land()
    assert race.found == {1: "back", 2: "stays"}


def test_a_compaction_that_lands_between_takes_no_new_row_down() -> None:
    race = Race(num_sorted_run__compaction_trigger="3")
    slow = race.prepare((1, "slow"), (5, "slow"))
    for at in range(12):
        race.prepare((at % 3, f"row {at}")).land()
        race.table.compact()
    slow.land()
    assert race.found == {0: "row 9", 1: "slow", 2: "row 11", 5: "slow"}
    for full in (False, True):
        race.table.compact(full=full)
        assert race.found == {0: "row 9", 1: "slow", 2: "row 11", 5: "slow"}
        check_invariants(StoredTable(race.story.disk))


@pytest.mark.parametrize(
    ("engine", "columns", "wanted"),
    [
        ("deduplicate", {}, 1),
        ("first-row", {}, 2),
        ("partial-update", {}, 1),
        ("aggregation", {"fields__v__aggregate_function": "sum"}, 6),
        ("aggregation", {"fields__v__aggregate_function": "first_value"}, 2),
        ("aggregation", {"fields__v__aggregate_function": "last_value"}, 1),
    ],
)
def test_every_merge_engine_goes_by_the_snapshot(
    engine: str, columns: dict[str, str], wanted: int
) -> None:
    race = Race(COUNTS, merge_engine=engine, **columns)
    late = race.prepare((1, 1))
    race.prepare((1, 2)).land()
    race.prepare((1, 3)).land()
    late.land()
    if engine != "first-row":  # its readers do not see level 0
        assert race.found == {1: wanted}
    race.table.compact(full=True)
    assert race.found == {1: wanted}


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_a_lookup_changelog_is_told_in_the_order_of_snapshots(vectors: str) -> None:
    race = Race(changelog_producer="lookup", deletion_vectors__enabled=vectors)
    race.prepare((1, "old")).land()
    race.table.compact()
    late = race.prepare((1, "late"))
    race.prepare((1, "early"), (2, "early")).land()
    late.land()
    race.table.compact()
    assert race.found == {1: "late", 2: "early"}
    told = race.table.changelog().select(["_row_kind", "id", "v"]).to_pylist()
    assert [tuple(row.values()) for row in told] == [
        ("+I", 1, "old"), ("-U", 1, "old"), ("+U", 1, "late"), ("+I", 2, "early"),
    ]  # fmt: skip


def test_an_input_changelog_follows_the_commits() -> None:
    race = Race(changelog_producer="input")
    late = race.prepare((1, "late"), (1, "later"))
    race.prepare((1, "early")).land()
    late.land()
    told = race.table.changelog().column("v").to_pylist()
    assert told == ["early", "late", "later"]
    assert race.found == {1: "later"}


@pytest.mark.parametrize("spillable", ["true", "false"])
def test_rows_of_one_write_keep_their_order(spillable: str) -> None:
    race = Race(write_buffer_size="4 kb", write_buffer_spillable=spillable)
    late = race.prepare(*((at % 7, f"{at:06d}") for at in range(3000)))
    race.prepare(*((at % 7, "early") for at in range(7))).land()
    late.land()
    wanted = {at % 7: f"{at:06d}" for at in range(2993, 3000)}
    assert race.found == wanted
    race.table.compact(full=True)
    assert race.found == wanted


def test_retracts_that_one_row_cannot_say_stay_in_order() -> None:
    race = Race(
        pa.schema([*COUNTS, ("kind", pa.string())]),
        merge_engine="aggregation",
        fields__v__aggregate_function="sum",
        aggregation__remove_record_on_delete="true",
        rowkind__field="kind",
    )
    session = race.table.session
    base = session.snapshots.latest()
    race.table.upsert([{"id": 1, "v": 100, "kind": "+I"}])
    rows = [{"id": 1, "v": 1, "kind": "+I"}, {"id": 1, "v": 1, "kind": "-D"}]
    rows += [{"id": 1, "v": 7, "kind": "+I"}, {"id": 2, "v": 8, "kind": "+I"}]
    late = Prepared(race, base, stage(session, rows, base))
    assert len(files_of(late.messages)) == 2
    late.land()
    assert race.found == {1: 7, 2: 8}
    race.table.compact(full=True)
    assert race.found == {1: 7, 2: 8}


def test_tasks_that_share_a_bucket_stand_in_the_order_of_the_commit() -> None:
    race = Race()
    session = race.table.session
    staging = staging_on(session, None)
    messages: list[CommitMessage] = []
    for task in range(6):
        writer = TableWriter(staging)
        for incoming in incoming_of(race, [(1, f"task {task}"), (10 + task, "own")]):
            writer.write(incoming)
        messages += writer.finish()
    Prepared(race, None, messages).land()
    assert race.found[1] == "task 5"
    race.table.compact(full=True)
    assert race.found[1] == "task 5"


def incoming_of(race: Race, rows: list[tuple[int, str]]) -> Any:
    made = [{"id": key, "v": value} for key, value in rows]
    return conformed(open_rows(made), race.table.session.schema, deletes=False)


def test_what_is_on_disk_is_what_other_clients_look_for() -> None:
    """New files: one number in the manifest, their snapshot's. Compacted rows: it in each row."""
    race = Race()
    race.prepare((1, "a"), (2, "a")).land()
    late = race.prepare((2, "late"))
    race.prepare((2, "b"), (3, "b")).land()
    late.land()
    session = race.table.session
    for entry in session.live_entries(newest(race)):
        assert entry.file.file_source is FileSource.APPEND
        assert entry.file.min_sequence_number == entry.file.max_sequence_number
    race.table.compact(full=True)
    (entry,) = session.live_entries(newest(race))
    assert entry.file.file_source is FileSource.COMPACT
    with session.file_io.open_input(session.data_path(entry)) as stored:
        rows = pq.read_table(stored)
    assert rows.column(SEQUENCE_NUMBER).to_pylist() == [1, 3, 2]
    assert rows.column("v").to_pylist() == ["a", "late", "b"]


def test_a_file_that_only_changes_its_level_keeps_its_number() -> None:
    race = Race(target_file_size="1 kb")
    race.prepare(*((at, "first") for at in range(200))).land()
    race.table.compact(full=True)
    assert {(low, high) for _, low, high in race.numbers()} == {(1, 1)}
    late = race.prepare((3, "late"))
    race.prepare((3, "early")).land()
    late.land()
    race.table.compact(full=True)
    assert race.found[3] == "late"
    assert race.found[4] == "first"


def test_going_back_keeps_the_order_of_what_was_there() -> None:
    race = Race()
    race.prepare((1, "one")).land()
    late = race.prepare((1, "three"))
    race.prepare((1, "two")).land()
    late.land()
    target = newest(race)
    race.story.put(k1="four")
    restore(race.table.session, target, CommitIdentity(commit_user="restorer"))
    assert race.found == {1: "three"}
    race.story.put(k1="six")
    assert race.found == {1: "six"}
    race.table.rollback_to(2)
    assert race.found == {1: "two"}
    race.story.put(k1="again")
    assert race.found == {1: "again"}
    race.table.compact(full=True)
    assert race.found == {1: "again"}


def test_a_rescale_keeps_the_order() -> None:
    race = Race()
    race.prepare((1, "one"), (2, "one")).land()
    late = race.prepare((1, "late"))
    race.prepare((1, "two")).land()
    late.land()
    race.table.rescale(3)
    race.table = race.story.reopened()
    assert race.found == {1: "late", 2: "one"}
    race.story.table = race.table
    race.story.put(k1="after")
    assert race.found == {1: "after", 2: "one"}
    race.table.compact(full=True)
    assert race.found == {1: "after", 2: "one"}


def test_an_overwrite_is_newer_than_what_it_replaces() -> None:
    race = Race()
    race.prepare((1, "one"), (2, "one")).land()
    race.table.overwrite([{"id": 2, "v": "over"}])
    race.prepare((2, "after"), (3, "after")).land()
    assert race.found == {2: "after", 3: "after"}
    race.table.compact(full=True)
    assert race.found == {2: "after", 3: "after"}


def test_the_key_story_names_the_snapshot() -> None:
    race = Race()
    late = race.prepare((1, "late"))
    race.prepare((1, "early")).land()
    late.land()
    versions = race.table.explain_key({"id": 1}).versions.to_pylist()
    assert sorted(row["_sequence_number"] for row in versions) == [1, 2]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"write-only": "false"}, "write-only"),
        ({"sequence.field": "v"}, "sequence.field"),
    ],
)
def test_what_does_not_go_with_it_is_refused(options: dict[str, str], word: str) -> None:
    with pytest.raises(InvalidOptionError, match=word) as refused:
        Story(options={**ORDERED, **options})
    assert "sequence.snapshot-ordering" in str(refused.value)


def test_it_needs_a_primary_key() -> None:
    with pytest.raises(InvalidOptionError, match=r"snapshot-ordering.*needs a primary key"):
        Story(key=(), options={**ORDERED, "bucket": "-1"})


def test_it_stays_as_it_was_once_there_are_rows() -> None:
    race = Race()
    with pytest.raises(lsm.LsmError, match="write-only"):
        race.table.alter(lsm.RemoveOption(key="write-only"))
    race.story.put(k1="a")
    with pytest.raises(lsm.LsmError, match="snapshot-ordering"):
        race.table.alter(lsm.RemoveOption(key="sequence.snapshot-ordering"))


def test_files_that_do_not_say_who_made_them_are_not_read() -> None:
    race = Race()
    prepared = race.prepare((1, "a"))
    (message,) = prepared.messages
    files = tuple(replace(file, file_source=None) for file in message.data.new_files)
    prepared.messages = [replace(message, data=replace(message.data, new_files=files))]
    prepared.land()
    race.story.put(k1="b")
    with pytest.raises(UnsupportedError, match="order of snapshots"):
        race.table.scan().to_arrow()


def test_a_later_file_beside_a_delete_does_not_make_it_newer(tmp_path: Any) -> None:
    """One write's delete and new row are in two files of one number; runs must keep their order."""
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        table = catalog.create_table(
            "db.t",
            pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.int64())]),
            primary_key=["id"],
            options={
                "bucket": "1",
                "merge-engine": "partial-update",
                "partial-update.remove-record-on-delete": "true",
                **ORDERED,
            },
        )
    table.upsert([{"id": 5, "a": 0, "b": 0}, {"id": 8, "a": 0, "b": 0}])
    table.upsert(
        pa.table(
            {
                "id": [5, 5, 7],
                "a": [None, 2, 2],
                "b": [None, 2, 2],
                "_row_kind": ["-D", "+I", "+I"],
            }
        )
    )
    (tree,) = table.tree()
    assert [run.row_count for run in tree.runs] == [2, 1, 2]
    wanted = {5: (2, 2), 7: (2, 2), 8: (0, 0)}

    def found() -> dict[int, tuple[int, int]]:
        rows = table.scan().to_arrow().to_pylist()
        return {row["id"]: (row["a"], row["b"]) for row in rows}

    assert found() == wanted
    # Its keys begin behind the delete's, whose run it would share as the one that ends first.
    table.upsert([{"id": 6, "a": 3, "b": 3}, {"id": 9, "a": 3, "b": 3}])
    wanted |= {6: (3, 3), 9: (3, 3)}
    assert found() == wanted
    table.compact(full=True)
    assert found() == wanted
