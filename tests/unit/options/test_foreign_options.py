"""Options of other clients: harmless ones are ignored, the others refuse by name, unknown ones warn."""

import json
import logging

import pytest

import lsm_engine as lsm
from lsm_engine.options import core_options
from lsm_engine.options.foreign import OTHER_OPTIONS, Verdict, other_option
from lsm_engine.options.table_options import foreign_options
from tests.foreign_documents import forget_checksums
from tests.unit.table.history_tables import Story


def foreign(**options: str) -> Story:
    """A table with a row, whose options somebody else has added to."""
    story = Story()
    story.put(k1="a")
    stored = json.loads(story.disk.read("schema/schema-0"))
    stored["options"] |= {key.replace("__", "-").replace("_", "."): options[key] for key in options}
    story.disk.replace("schema/schema-0", json.dumps(stored).encode())
    forget_checksums(story.disk)
    return story


def test_no_option_is_sorted_twice() -> None:
    assert [key for key in OTHER_OPTIONS if core_options.find(key)] == []
    assert all(of.reason and of.verdict is not Verdict.UNKNOWN for of in OTHER_OPTIONS.values())


OF_MASTER = {
    Verdict.HARMLESS: """
        compaction.bucket-distribution-strategy filesystem.job-level-settings.enabled legacy-timestamp-mapping.enabled
        lookup.dynamic-partition.refresh.async partition.mark-done-action.mode partition.mark-done.recover-from-state
        read.allow.fullScan read.changelog read.shuffle-bucket-with-partition requiredSparkConfsCheck.enabled
        scan.dedicated-split-generation unaware-bucket.no-shuffle vector-search.lateral-join.parallelism
        write.data-evolution.update-conflict-retry.max-attempts write.data-evolution.update-conflict-retry.wait-ms
        write.hive-style-dynamic-partition.enabled write.use-v2-write
    """,
    Verdict.REFUSES_WRITING: "commit.custom-listeners",
}
"""Options of Flink and Spark, and of Iceberg metadata, in the sources of August 2026."""
OF_2_0 = {
    Verdict.HARMLESS: """
        blob-compaction.enabled blob-descriptor.source-table blob-view.resolve.enabled blob.copy-buffer-size
        blob-write-null-on-fetch-failure blob-write-null-on-missing-file
        chain-table.split.key-range-enabled chain-table.streaming.merge-snapshot compaction.small-file-ratio
        data-evolution.compaction.rewrite-row-ids data-evolution.merge-into.file-pruning
        data-evolution.merge-into.source-persist data-evolution.reassign.skip-contiguous-row-count
        data-evolution.row-id-conflict-rewrite.max-size data-evolution.row-sidecar.enabled
        data-evolution.row-sidecar.max-selected-rows data-evolution.row-sidecar.max-selection-ratio
        full-text-index.search-mode global-index.search-mode local-kv-db.block-size
        lookup.blob-as-descriptor lookup.continuous.discovery-interval manifest-sort.enabled manifest-sort.max-rewrite-size
        manifest-sort.partition-field manifest.merge-optimize.enabled
        postpone.batch-write-fixed-bucket.rescale-load-factor postpone.target-row-num-per-bucket
        row-tracking.partition-group-on-commit scalar-index.search-mode
        scan.fallback-branch.read-fail-fast target-file-row-num variant.shredding.adaptive.maxInferBufferRow
        variant.shredding.adaptive.retentionRatio variant.shredding.inferenceMode
        vector-index.search-mode vector-search.distribute.enabled vector-search.lateral-join.batch-size
        write.sequence-number-init-mode
    """,
    Verdict.REFUSES_WRITING: """
        blob-view-field pk-bitmap.index.columns pk-btree.index.columns pk-full-text.index.columns
        pk-multivalue.index.columns pk-vector.index.columns
    """,
    Verdict.REFUSES_READING: "scan.bucket",
}
"""Options that Java 2.0.0, or the sources after it, have and 1.4.2 has not."""


def test_options_of_java_2_0_and_later_are_sorted() -> None:
    for verdict, keys in (*OF_2_0.items(), *OF_MASTER.items()):
        assert {key: other_option(key).verdict for key in keys.split()} == dict.fromkeys(
            keys.split(), verdict
        )
    assert other_option("query-auth.enabled").verdict_of("false") is Verdict.HARMLESS


def test_harmless_options_are_read_past_and_written_beside() -> None:
    story = foreign(
        **{"spill-compression": "zstd", "sink.parallelism": "4", "manifest.format": "avro"}
    )
    story.table = story.reopened()
    story.put(k2="b")
    assert story.rows() == {1: "a", 2: "b"}


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("metadata.iceberg.storage", "hive-catalog"),
        ("commit.callbacks", "com.Example"),
        ("pk-btree.index.columns", "v"),
    ],
)
def test_an_option_that_writers_owe_something_refuses_every_change(key: str, text: str) -> None:
    story = foreign(**{key: text})
    table = story.reopened()
    assert story.rows() == {1: "a"}
    before = story.files()
    for change in (
        lambda: table.upsert([{"id": 2, "v": "b"}]),
        lambda: table.compact(full=True),
        lambda: table.expire_snapshots(),
    ):
        with pytest.raises(lsm.UnsupportedError, match=key) as refused:
            change()
        assert refused.value.facts == {"option": key, "value": text}
    assert story.files() == before


@pytest.mark.parametrize(
    ("key", "text"),
    [("query-auth.enabled", "TRUE"), ("scan.version", "7"),
     ("branch", "other"), ("incremental-between", "1,2")],
)  # fmt: skip
def test_an_option_that_changes_what_is_read_refuses_reading(key: str, text: str) -> None:
    with pytest.raises(lsm.UnsupportedError, match=key):
        foreign(**{key: text}).reopened()


def test_an_unknown_option_refuses_writing_and_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    key = "fold.rows-by-moonlight"
    story = foreign(**{key: "true", "sink.parallelism": "2"})
    with caplog.at_level(logging.WARNING, "lsm_engine"):
        assert story.rows() == story.rows() == {1: "a"}
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [key in record.getMessage() for record in warnings] == [True]
    with pytest.raises(lsm.UnsupportedError, match=key):
        story.reopened().upsert([{"id": 2, "v": "b"}])
    report = story.reopened().verify()
    assert report.is_clean
    unknown = [one for one in report.not_honoured if "unknown" in one]
    assert len(report.not_honoured) == 2
    assert len(unknown) == 1
    assert key in str(report)


def test_a_refusal_names_every_option_in_the_way() -> None:
    story = foreign(**{"upsert-key": "v", "commit.callbacks": "com.Example"})
    with pytest.raises(
        lsm.UnsupportedError,
        match=r"(?s)upsert-key.*commit\.callbacks|commit\.callbacks.*upsert-key",
    ):
        story.reopened().upsert([{"id": 2, "v": "b"}])


def test_write_compaction_skip_is_an_older_name_of_write_only() -> None:
    options = foreign_options({"write.compaction-skip": "true"})
    assert options[core_options.WRITE_ONLY]


@pytest.mark.parametrize("engine", ["deduplicate", "aggregation", "partial-update"])
def test_ignore_update_before_drops_such_rows_and_keeps_deletes(engine: str) -> None:
    columns = {"ignore-update-before": "true", "merge-engine": engine}
    if engine == "aggregation":
        columns["fields.v.aggregate-function"] = "listagg"
        columns["fields.v.ignore-retract"] = "true"
    story = Story(options=columns)
    rows = [{"id": 1, "v": "a", "_row_kind": "+I"}, {"id": 1, "v": "a", "_row_kind": "-U"}]
    story.table.upsert(rows)
    assert story.rows() == {1: "a"}
    story.table.upsert(
        [{"id": 1, "v": "a", "_row_kind": "-U"}, {"id": 2, "v": "b", "_row_kind": "+I"}]
    )
    assert story.rows() == {1: "a", 2: "b"}


def test_families_of_options_share_a_verdict() -> None:
    assert other_option("sink.committer-cpu").verdict is Verdict.HARMLESS
    assert other_option("parquet.block.size").verdict is Verdict.HARMLESS
    assert other_option("metadata.iceberg.uri").verdict is Verdict.HARMLESS
