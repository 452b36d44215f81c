"""Tables with facts of newer clients in their metadata are refused by name, whatever options say."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc

import lsm_engine as lsm
from lsm_engine.format.data_file import EMPTY_ROW, DataFileMeta
from lsm_engine.format.index_file import IndexFileMeta, IndexManifestEntry
from lsm_engine.format.manifest import ManifestFileMeta
from lsm_engine.format.manifest_file import (
    encode_index_manifest,
    encode_manifest,
    encode_manifest_list,
)
from lsm_engine.options.modes import EntryKind
from tests.foreign_documents import forget_checksums
from tests.unit.table.history_tables import Story


def told() -> Story:
    """Two snapshots of two keys."""
    story = Story()
    story.put(k1="a", k2="b")
    story.put(k1="c")
    return story


def newest_manifest(story: Story) -> ManifestFileMeta:
    session = story.table.session
    snapshot = story.table.latest_snapshot()
    assert snapshot is not None
    (meta,) = session.manifests.read_list(snapshot.delta_manifest_list)
    return meta


def change_files(story: Story, **facts: Any) -> None:
    """Rewrite the newest manifest with other facts about its files."""
    forget_checksums(story.disk)
    meta = newest_manifest(story)
    entries = story.table.session.manifests.read_entries(meta)
    changed = [
        replace(
            entry,
            file=DataFileMeta(**{n: getattr(entry.file, n) for n in entry.file.__slots__} | facts),
        )
        for entry in entries
    ]
    story.disk.replace(f"manifest/{meta.file_name}", encode_manifest(changed))


def change_snapshot(story: Story, **members: Any) -> None:
    """Give the newest snapshot other members."""
    forget_checksums(story.disk)
    snapshot = story.table.latest_snapshot()
    assert snapshot is not None
    path = f"snapshot/snapshot-{snapshot.id}"
    stored = json.loads(story.disk.read(path)) | members
    story.disk.replace(path, json.dumps(stored).encode())


def count_row_ids(story: Story) -> None:
    forget_checksums(story.disk)
    snapshot = story.table.latest_snapshot()
    assert snapshot is not None
    listed = [replace(newest_manifest(story), min_row_id=0, max_row_id=1)]
    story.disk.replace(f"manifest/{snapshot.delta_manifest_list}", encode_manifest_list(listed))


def index_columns(story: Story) -> None:
    index = IndexFileMeta(index_type="btree", file_name="btree-u-0.index", file_size=9, row_count=1)
    entry = IndexManifestEntry(kind=EntryKind.ADD, partition=EMPTY_ROW, bucket=0, index_file=index)
    story.disk.replace("manifest/index-manifest-u-0", encode_index_manifest([entry]))
    change_snapshot(story, indexManifest="index-manifest-u-0")


def index_elsewhere(story: Story) -> None:
    index = IndexFileMeta(
        index_type="HASH", file_name="vectors-u-0", file_size=9, row_count=1, external_path="/tmp/x"
    )
    entry = IndexManifestEntry(kind=EntryKind.ADD, partition=EMPTY_ROW, bucket=0, index_file=index)
    story.disk.replace("manifest/index-manifest-u-0", encode_index_manifest([entry]))
    change_snapshot(story, indexManifest="index-manifest-u-0")


def store_as(write: Callable[[pa.Table, io.BytesIO], None]) -> Callable[[Story], None]:
    def change(story: Story) -> None:
        stored = io.BytesIO()
        write(pa.table({"_VERSION": [2]}), stored)
        name = newest_manifest(story).file_name
        forget_checksums(story.disk)
        story.disk.replace(f"manifest/{name}", stored.getvalue())

    return change


FACTS: dict[str, tuple[Callable[[Story], None], str]] = {
    "row ids": (lambda story: change_files(story, first_row_id=0), "row tracking.*manifest="),
    "some columns": (lambda story: change_files(story, write_columns=("v",)), "data evolution"),
    "blob": (lambda story: change_files(story, file_name="data-u-9.blob"), r"format.*data-u-9\.blob"),
    "elsewhere": (
        lambda story: change_files(story, external_path="s3://other/x.parquet"),
        "files outside the table",
    ),
    "index elsewhere": (index_elsewhere, "files outside the table.*vectors-u-0"),
    "row ids counted": (count_row_ids, "row tracking"),
    "b-tree": (index_columns, r"type 'btree'.*btree-u-0\.index"),
    "orc manifests": (store_as(orc.write_table), "manifest.format=orc"),
    "newer snapshot": (lambda story: change_snapshot(story, version=4), "version 4"),
}  # fmt: skip
VERBS: dict[str, Callable[[Story], Any]] = {
    "scan": lambda story: story.rows(),
    "lookup": lambda story: story.reopened().lookup([{"id": 1}]),
    "compact": lambda story: story.reopened().compact(full=True),
    "upsert": lambda story: story.reopened().upsert([{"id": 7, "v": "x"}]),
    "expire": lambda story: story.reopened().expire_snapshots(
        retain_max=1, retain_min=1, older_than="0 s"
    ),
    "orphans": lambda story: story.reopened().remove_orphan_files(older_than="0 s", force=True),
}


READ_PAST = {("b-tree", "scan"), ("b-tree", "lookup")}
"""Facts that only those who write have to keep right."""


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("fact", FACTS)
def test_facts_of_newer_clients_refuse_every_verb_by_name(fact: str, verb: str) -> None:
    change, named = FACTS[fact]
    story = told()
    change(story)
    before = {path: story.disk.read(path) for path in story.files()}
    if (fact, verb) in READ_PAST:
        assert VERBS[verb](story)
        return
    with pytest.raises(lsm.UnsupportedError, match=named) as refused:
        VERBS[verb](story)
    if "version" not in named:
        assert refused.value.facts["table"] == "t"
    assert {path: story.disk.read(path) for path in story.files()} == before


def test_verify_lists_a_fact_that_it_cannot_read_past() -> None:
    story = told()
    change_files(story, first_row_id=0)
    (problem,) = story.reopened().verify().problems
    assert "row tracking" in problem


def test_an_append_table_with_row_ids_is_not_extended_without_them() -> None:
    story = Story(key=(), options={"bucket": "-1"})
    story.table.append([{"id": 1, "v": "a"}])
    change_snapshot(story, nextRowId=1)
    before = story.files()
    with pytest.raises(lsm.UnsupportedError, match="row tracking"):
        story.reopened().append([{"id": 2, "v": "b"}])
    assert story.files() == before
