"""Plans and commits of large tables with decoded manifests on disk: the same answers, and less is decoded."""

import tempfile

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.format.manifest_file import WITHOUT_STATS, entries_of
from lsm_engine.metadata import manifests
from tests.bench.many_files import many_files


@pytest.fixture
def decoded(monkeypatch, tmp_path):
    """Names of manifests that are decoded. The cache is one of the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names, decode = [], manifests.decode_manifest

    def note(data, **given):
        names.append(given["file_name"])
        return decode(data, **given)

    monkeypatch.setattr(manifests, "decode_manifest", note)
    return names


def facts(path):
    """Every file of every split of a table that is opened anew."""
    splits = lsm.open_table(path).scan().splits()
    return sorted(
        (one.partition, one.bucket, *sorted(f.file_name for f in one.files)) for one in splits
    )


def test_the_third_plan_decodes_nothing_and_is_the_same(tmp_path, decoded):
    made = many_files(tmp_path / "t", 12_000)
    answers, counts = [], []
    for _ in range(4):
        decoded.clear()
        answers.append(facts(made.path))
        counts.append(len(set(decoded)))
    assert answers[1:] == answers[:1] * 3
    assert counts == [3, 3, 0, 0]
    assert lsm.manifest_cache().file_count >= 3


def test_entries_come_back_as_they_were(tmp_path, decoded):
    made = many_files(tmp_path / "t", 6_000)
    session = lsm.open_table(made.path).session
    metas = session.manifest_metas(session.snapshots.latest())
    whole = [session.manifests.read(one) for one in metas]
    for _ in range(3):
        anew = lsm.open_table(made.path).session.manifests
        for meta, entries in zip(metas, whole, strict=True):
            found = anew.read(meta, WITHOUT_STATS)
            assert found.schema == entries.select(found.column_names).schema
            assert entries_of(found) == entries_of(entries.select(found.column_names))


def test_a_table_that_wants_none_has_none(tmp_path, decoded):
    made = many_files(tmp_path / "t", 6_000)
    lsm.open_table(made.path).alter(lsm.SetOption("manifest.cache-max-disk-size", "0"))
    for _ in range(4):
        decoded.clear()
        facts(made.path)
        assert decoded
    assert lsm.manifest_cache().file_count == 0


def test_verify_believes_files_alone(tmp_path, decoded):
    made = many_files(tmp_path / "t", 6_000)
    for _ in range(3):
        facts(made.path)
    table = lsm.open_table(made.path)
    metas = table.session.manifest_metas(table.session.snapshots.latest())
    decoded.clear()
    table.session.manifests.forget_all()
    table.session.manifests.read(metas[0], WITHOUT_STATS)
    assert decoded


def test_small_manifests_are_left_alone(tmp_path, decoded):
    table = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)).create_table(
        "a.b", pa.schema([pa.field("k", pa.int64(), nullable=False)]), primary_key=["k"]
    )
    for number in range(5):
        table.upsert([{"k": number}])
        lsm.open_table(table.location).scan().to_arrow()
    assert lsm.manifest_cache().file_count == 0


def test_forgetting_a_key_removes_what_processes_share(tmp_path, decoded):
    """Decoded manifests have least and greatest keys."""
    made = many_files(tmp_path / "t", 6_000)
    for _ in range(2):
        facts(made.path)
    assert lsm.manifest_cache().file_count
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
    schema = pa.schema([pa.field("k", pa.string(), nullable=False)])
    table = catalog.create_table("a.b", schema, primary_key=["k"])
    table.upsert([{"k": "somebody"}, {"k": "else"}])
    table.forget([{"k": "somebody"}], dry_run=False, unreferenced_older_than="0 s")
    assert lsm.manifest_cache().file_count == 0
