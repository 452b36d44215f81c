"""Nothing is written that readers would refuse: keys, statistics, ids and times at their limits."""

import json
import logging
from dataclasses import replace

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import ErrorKind, InvalidInputError, UnsupportedError
from lsm_engine.base.units import LONG_MAX
from lsm_engine.format.avro import container
from lsm_engine.format.avro.container import Limits
from lsm_engine.format.documents import encode_consumer, encode_snapshot
from lsm_engine.table.incoming import KEY_BYTES_MAX
from lsm_engine.types.arrow_types import HIGHEST_FIELD_ID
from tests.unit.maintenance.test_deep_verify import rewrite_delta
from tests.unit.table.history_tables import START, Story

DAY = 24 * 3600 * 1000


TEXTS = pa.schema([pa.field("k", pa.string(), nullable=False), pa.field("v", pa.string())])


def table_of_texts(**options: str) -> Story:
    return Story(TEXTS, key=("k",), options=options)


def rows(*pairs: tuple[str, str]) -> pa.Table:
    return pa.table({"k": [k for k, _ in pairs], "v": [v for _, v in pairs]})


@pytest.mark.parametrize("verb", ["upsert", "delete"])
def test_a_key_too_large_for_a_manifest_is_refused_by_name_and_size(verb: str) -> None:
    told = table_of_texts()
    table = told.table
    table.upsert(rows(("a", "1")))
    before = told.disk.list("bucket-0")
    size = 10 << 20
    batch = rows(("b" * size, "2"), ("c", "3"))
    with pytest.raises(InvalidInputError, match="key column 'k' has a value of 10485760") as caught:
        getattr(table, verb)(batch if verb == "upsert" else batch.select(["k"]))
    assert caught.value.kind is ErrorKind.INVALID_KEY
    assert caught.value.facts == {"column": "k", "bytes": size, "limit": KEY_BYTES_MAX}
    assert told.disk.list("bucket-0") == before
    assert table.scan().to_arrow().to_pylist() == [{"k": "a", "v": "1"}]


@pytest.mark.parametrize("mode", ["full", "truncate(16)"])
def test_keys_at_the_limit_are_read_after_compactions_and_manifest_merges(mode: str) -> None:
    options = {"metadata.stats-mode": mode, "manifest.merge-min-count": "2"}
    told = table_of_texts(**options)
    table = told.table
    keys = [letter * KEY_BYTES_MAX for letter in "abcdef"]
    for key in keys:  # so alike that a manifest of them unfolds into far more than it stores
        table.upsert(rows((key, key), ("z", key)))
    table.compact(full=True)
    reopened = told.reopened()
    assert reopened.scan().to_arrow().column("k").to_pylist() == [*keys, "z"]
    assert reopened.verify().is_clean
    table.upsert(rows(("after", "")))


def test_values_too_large_for_statistics_leave_none() -> None:
    table = table_of_texts(**{"metadata.stats-mode": "full"}).table
    value = "v" * (10 << 20)
    table.upsert(rows(("a", value), ("b", "small")))
    assert table.scan().to_arrow().column("v").to_pylist() == [value, "small"]
    (entry,) = table.session.live_entries(table.session.snapshots.latest())
    assert len(entry.file.value_stats.min_values) < 100
    assert entry.file.value_stats.null_counts == (0, 0)


def test_entries_that_one_manifest_cannot_hold_go_into_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = Limits(block_bytes=40_000, total_bytes=40_000, total_bytes_per_stored_byte=0)
    told = table_of_texts(bucket="8")
    table = told.table
    monkeypatch.setattr(container.read_container, "__kwdefaults__", {"limits": small})
    keys = [f"{number:04}" + "k" * 5_000 for number in range(20)]
    table.upsert(rows(*((key, "") for key in keys)))
    metas = table.session.manifest_metas(table.session.snapshots.latest())
    assert len(metas) > 1
    assert sum(meta.added_file_count for meta in metas) == 8
    read = told.reopened().scan().to_arrow().column("k").to_pylist()
    assert sorted(read) == keys


def test_a_snapshot_that_readers_would_refuse_is_never_written() -> None:
    told = Story()
    told.put(k1="a")
    head = told.table.session.snapshots.latest()
    for wrong in (
        replace(head, id=LONG_MAX + 1),
        replace(head, time_millis=1 << 64),
        replace(head, base_manifest_list="../elsewhere"),
        replace(head, properties={"half": "\ud800"}),
    ):
        with pytest.raises(InvalidInputError):
            encode_snapshot(wrong)
    with pytest.raises(InvalidInputError):
        encode_consumer(LONG_MAX + 1, name="c")


def test_the_last_snapshot_id_is_the_end_of_commits_and_not_of_the_table() -> None:
    told = Story()
    told.put(k1="a")
    store, disk = told.table.session.snapshots, told.disk
    last = replace(store.latest(), id=LONG_MAX)
    disk.delete("snapshot/snapshot-1")
    store.publish(last)
    before = sorted(told.files())
    with pytest.raises(UnsupportedError, match="no snapshot id left"):
        told.put(k1="b")
    assert sorted(told.files()) == before
    assert told.rows() == {1: "a"}


@pytest.mark.parametrize("ahead", [1 << 62, 75 * 365 * DAY])
def test_a_stamp_far_ahead_is_noticed_not_handed_on_and_stalls_no_expiry(
    ahead: int, caplog: pytest.LogCaptureFixture
) -> None:
    told = Story()
    told.put(k1="a")
    store = told.table.session.snapshots
    wrong = replace(store.latest(), time_millis=START + ahead)
    told.disk.replace("snapshot/snapshot-1", encode_snapshot(wrong))
    with caplog.at_level(logging.WARNING):
        told.put(k1="b")
    assert "ahead of this machine's clock" in caplog.text
    assert store.load(2).time_millis < START + DAY
    told.put(k1="c")
    told.table.session.clock.sleep_millis(DAY)
    told.table.expire_snapshots(older_than="1 h", retain_min=1)
    assert [one.id for one in told.table.snapshots()] == [3]


def test_small_differences_of_clocks_keep_times_in_order() -> None:
    told = Story()
    told.put(k1="a")
    store = told.table.session.snapshots
    wrong = replace(store.latest(), time_millis=START + DAY)
    told.disk.replace("snapshot/snapshot-1", encode_snapshot(wrong))
    told.put(k1="b")
    assert store.load(2).time_millis == START + DAY


@pytest.mark.parametrize("left", [0, 1, 2])
def test_sequence_numbers_that_run_out_are_refused_before_anything_changes(left: int) -> None:
    told = Story()
    told.put(k1="a")
    session = told.table.session
    (entry,) = session.live_entries(session.snapshots.latest())
    file = replace(entry.file, max_sequence_number=LONG_MAX - 1 - left)
    rewrite_delta(told, replace(entry, file=file))
    before = {path: told.disk.read(path) for path in told.files()}
    if left == 2:
        told.put(k1="b", k2="c")
        assert told.rows() == {1: "b", 2: "c"}
        return
    with pytest.raises(lsm.UnsupportedError, match="sequence numbers"):
        told.put(k1="b", k2="c")
    assert {path: told.disk.read(path) for path in told.files()} == before


def test_ids_of_columns_that_run_out_are_refused_before_anything_changes() -> None:
    told = Story()
    stored = json.loads(told.disk.read("schema/schema-0"))
    stored.pop("lsmChecksum")
    stored["highestFieldId"] = HIGHEST_FIELD_ID
    told.disk.replace("schema/schema-0", json.dumps(stored).encode())
    table = told.reopened()
    with pytest.raises(lsm.UnsupportedError, match="ids for columns"):
        table.alter(lsm.AddColumn(name="x", type="INT"))
    assert told.files("schema") == {"schema/schema-0"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("snapshot.num-retained.max", str(2**63)),
        ("write-buffer-size", "9999999999999 tb"),
        ("snapshot.time-retained", "99999999999999 d"),
    ],
)
def test_options_beyond_64_bits_are_refused(key: str, value: str) -> None:
    told = Story()
    with pytest.raises(lsm.InvalidOptionError, match=key):
        told.table.alter(lsm.SetOption(key=key, value=value))
    with pytest.raises(lsm.InvalidInputError):
        told.table.expire_snapshots(older_than="99999999999999 d")
