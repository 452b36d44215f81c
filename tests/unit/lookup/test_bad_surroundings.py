"""Footers that lie, directories that cannot be written: an error that names the thing, nothing half done."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import ErrorKind
from lsm_engine.cache.shared import SharedCache, manifest_cache_root
from lsm_engine.lookup.lookup import process_cache
from lsm_engine.storage.local_state import default_root, default_roots

BLOOM, CODE = b"org.apache.hudi.bloomfilter", b"hoodie_bloom_filter_type_code"
LOWEST, HIGHEST = b"hoodie_min_record_key", b"hoodie_max_record_key"

UNCHECKED = {"index.type": "bloom", "parquet.page-checksum": "false"}
"""Of files that another writer left, no checksum of the footer is known."""


def create(root, **options):
    catalog = lsm.open_catalog(f"sqlite:///{root}/c.db", warehouse=f"{root}/wh")
    return catalog.create_table(
        "d.t", pa.schema([("k", pa.int64()), ("v", pa.int64())]), primary_key=["k"],
        options={"write-only": "true", "index.bloom.num_entries": "100", **options},
    )  # fmt: skip


def keys(*numbers):
    return pa.table({"k": pa.array(numbers, pa.int64())})


def with_footer(path, change):
    """The same file with other footer members, as another writer might have left it."""
    stored = pq.read_table(path)
    members = dict(stored.schema.metadata)
    change(members)
    pq.write_table(stored.replace_schema_metadata(members), path)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda m: m.update({CODE: b"CUCKOO"}), lsm.UnsupportedError, "CUCKOO"),
        (lambda m: m.update({LOWEST: b"9", HIGHEST: b"1"}), lsm.CorruptFileError, "smallest record key"),
        (lambda m: m.update({BLOOM: m[BLOOM][:-12]}), lsm.CorruptFileError, "torn"),
        (lambda m: m.update({BLOOM: m[BLOOM][:-5] + b"!!!!!"}), lsm.CorruptFileError, "torn"),
    ],
    ids=["type", "bounds", "cut", "no base64"],
)  # fmt: skip
def test_footers_that_lie_are_refused_by_file(change, error, said, tmp_path):
    table = create(tmp_path, **UNCHECKED)
    table.upsert(pa.table({"k": range(50), "v": range(50)}))
    (path,) = Path(table.location).rglob("data-*.parquet")
    with_footer(path, change)
    with pytest.raises(error, match=path.name) as refused:
        table.locate(keys(1, 99))
    assert said in str(refused.value)


def test_footers_that_say_nothing_leave_the_file_a_candidate(tmp_path):
    table = create(tmp_path, **UNCHECKED)
    table.upsert(pa.table({"k": range(50), "v": range(50)}))
    (path,) = Path(table.location).rglob("data-*.parquet")
    with_footer(path, lambda m: [m.pop(name) for name in (BLOOM, CODE, LOWEST, HIGHEST)])
    assert table.locate(keys(1, 99))["action"].to_pylist() == ["update", "insert"]


def test_the_index_type_of_a_table_with_data_stays(tmp_path):
    table = create(tmp_path, **{"index.type": "simple"})
    table.alter(lsm.SetOption(key="index.type", value="bloom"))
    table.upsert(pa.table({"k": [1], "v": [1]}))
    (path,) = Path(table.location).rglob("data-*.parquet")
    assert BLOOM in pq.read_metadata(path).metadata
    for value in ("simple", "global-bloom", "inmemory", "bucket"):
        with pytest.raises(lsm.InvalidOptionError, match=r"index\.type") as refused:
            table.alter(lsm.SetOption(key="index.type", value=value))
        assert refused.value.kind is ErrorKind.IMMUTABLE_OPTION
    with pytest.raises(lsm.InvalidOptionError, match=r"index\.type"):
        table.alter(lsm.RemoveOption(key="index.type"))
    for name in ("record_index", "hbase", "ROARING"):
        with pytest.raises(lsm.InvalidOptionError, match=r"index\.type"):
            create(tmp_path / name, **{"index.type": name})


LOOK_UP = """
import json, os, resource, signal, sys
import lsm_engine as lsm
from lsm_engine.storage.clock import SystemClock
from lsm_engine.cache.disk import DiskCache
from lsm_engine.lookup.lookup import TableQuery

where, root, trouble = sys.argv[1:]
table = lsm.open_table(where)
with TableQuery(table.session, DiskCache(SystemClock(), root + "-warm")) as warm:
    warm.lookup([{"k": 7}])  # what is compiled is written to disk as well
cache = DiskCache(SystemClock(), root)
query = TableQuery(table.session, cache)
if trouble == "full":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
if trouble == "nobody":
    os.setgid(65534)
    os.setuid(65534)
try:
    query.lookup([{"k": 7}])
    said = {"error": None}
except lsm.LsmError as error:
    said = {"error": type(error).__name__, "text": str(error)}
left = [name for _, _, names in os.walk(root) for name in names if name.endswith(".lookup")]
print(json.dumps({**said, "left": left}))
"""


@pytest.fixture
def open_root():
    """A directory that other users may enter; pytest's own are private."""
    with tempfile.TemporaryDirectory() as root:
        os.chmod(root, 0o755)
        yield Path(root)


def looked_up(table, root, trouble):
    command = [sys.executable, "-c", LOOK_UP, table.location, str(root), trouble]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_a_full_directory(open_root):
    """As a quota or a small disk has it: the write fails half-way, and what was written goes."""
    table = create(open_root)
    table.upsert(pa.table({"k": range(5000), "v": range(5000)}))
    said = looked_up(table, open_root / "cache", "full")
    assert said["error"] == "StorageError"
    assert str(open_root / "cache") in said["text"]
    assert said["left"] == []
    assert looked_up(table, open_root / "cache", "none")["error"] is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("trouble", ["read-only", "of another user"])
def test_directories_that_are_not_for_us(trouble, open_root):
    table = create(open_root)
    table.upsert(pa.table({"k": range(50), "v": range(50)}))
    for path in [open_root, *open_root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    root = open_root / "cache"
    root.mkdir(mode=0o700)
    if trouble == "read-only":
        os.chown(root, 65534, 65534)
        root.chmod(0o500)
        said = looked_up(table, root, "nobody")
    else:
        os.chown(root, 12345, 12345)
        said = looked_up(table, root, "none")
    assert said["error"] == "StorageError"
    assert str(root) in said["text"]


def squat_link(path: Path) -> None:
    (path.parent / "elsewhere").mkdir(exist_ok=True)
    path.symlink_to(path.parent / "elsewhere")


def squat_open(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)  # stands for the directory of another user


@pytest.mark.parametrize("squat", [squat_link, squat_open, Path.touch])
def test_a_lookup_directory_that_is_taken_is_left_alone_for_a_private_one(
    squat, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    squat(taken := tmp_path / f"lsm-lookup-{os.getuid()}")
    process_cache().close()
    table = create(tmp_path, bucket="1")
    table.upsert(pa.table({"k": [1, 2], "v": [10, 20]}))
    for _ in range(2):
        assert table.lookup(keys(2))["v"].to_pylist() == [20]
    (root,) = tmp_path.glob(f"{taken.name}-*")
    assert (root.stat().st_mode & 0o777, root.stat().st_uid) == (0o700, os.getuid())
    assert default_roots() == [str(root)]
    assert default_root() == str(root)  # of the next process, too
    assert not taken.is_dir() or not list(taken.iterdir())
    assert [record.levelname for record in caplog.records if taken.name in record.getMessage()] == [
        "WARNING"
    ]
    process_cache().close()


@pytest.mark.parametrize("squat", [squat_link, squat_open, Path.touch])
def test_a_manifest_cache_that_is_taken_is_left_alone_for_a_private_one(
    squat, tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    squat(taken := tmp_path / f"lsm-manifests-{os.getuid()}")
    cache = SharedCache(manifest_cache_root(), 1 << 20)
    cache.put("key", lambda sink: sink.write(b"content"))
    assert bytes(cache.find("key")) == b"content"
    (root,) = tmp_path.glob(f"{taken.name}-*")
    assert manifest_cache_root() == str(root)
    lsm.clear_manifest_cache()
    assert not list(root.iterdir())
    assert not taken.is_dir() or not list(taken.iterdir())
