"""A warehouse of Java 1.4.2 and pypaimon 2.1.0, with damage of every kind, gets to a clean `lsm doctor`.

Nobody does anything but what `lsm` prints. Partitions, formats, merge engines and bucket modes besides those of
test_operator_story; all 26 tables with `-m sweep`, the half of them otherwise.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from tests.interop.clients import PypaimonClient
from tests.interop.newest_java import NewestJava
from tests.unit.cli.conftest import Shell
from tests.unit.cli.test_operator import aged, mended

pytestmark = pytest.mark.interop

FIELDS = [["dt", "STRING NOT NULL"], ["id", "BIGINT NOT NULL"], ["name", "STRING"],
          ["amount", "DECIMAL(12, 2)"], ["at", "TIMESTAMP(3)"]]  # fmt: skip
DAYS = ("2024-05-01", "2024-05-02", "2024-05-03")
KEPT = {"bucket": "1", "snapshot.num-retained.min": "50", "snapshot.num-retained.max": "50"}
SUMS = {"merge-engine": "aggregation", "fields.amount.aggregate-function": "sum"}
JAVA: dict[str, tuple[list[str], list[str], dict[str, str], int]] = {
    # name: primary key, partitions, options, commits
    "orders": (["dt", "id"], ["dt"], {"bucket": "2", "changelog-producer": "lookup", "file.format": "orc"}, 5),
    "clicks": ([], ["dt"], {"bucket": "-1", "file.format": "avro"}, 14),
    "debt": (["id"], [], {"bucket": "1", "write-only": "true"}, 14),
    "partial": (["id"], [], {"bucket": "1", "merge-engine": "partial-update", "file.compression": "lz4"}, 6),
    "sums": (["id"], [], {"bucket": "2", **SUMS}, 4),
    "vectors": (["id"], [], {"bucket": "1", "deletion-vectors.enabled": "true"}, 5),
    "hint": (["id"], [], KEPT, 7),
    "gap": (["id"], [], KEPT, 4),
    "manifest": (["id"], [], KEPT, 7),
    "cut": (["id"], [], KEPT, 7),
    "emptied": (["id"], [], KEPT, 7),
    "refused": (["id"], [], {"bucket": "2", "bucket-function.type": "mod"}, 1),
    "input": (["id"], [], {"bucket": "1", "changelog-producer": "input"}, 6),
    # with -m sweep:
    "users": (["id"], [], {"bucket": "-1", "dynamic-bucket.target-row-num": "10"}, 4),
    "first": (["id"], [], {"bucket": "1", "merge-engine": "first-row"}, 4),
    "schemas": (["id"], [], KEPT, 6),
    "leftovers": (["id"], [], KEPT, 7),
    "old_list": (["id"], [], KEPT, 7),
    "expired": (["id"], [], {"bucket": "1", "write-only": "true", "snapshot.num-retained.min": "1",
                             "snapshot.num-retained.max": "3", "snapshot.time-retained": "1 s"}, 30),
    "waiting": (["id"], [], {"bucket": "-2"}, 1),
}  # fmt: skip
PYPAIMON: dict[str, tuple[list[str], list[str], dict[str, str]]] = {
    "keyed": (["k"], [], {"bucket": "4"}),
    "logs": ([], [], {"bucket": "-1"}),
    "parts": (["p", "k"], ["p"], {"bucket": "1"}),
    # with -m sweep:
    "wait": (["k"], [], {"bucket": "-2"}),
    "tiny": (["k"], [], {"bucket": "1"}),
    "wide": (["k"], [], {"bucket": "64"}),
}
FEW = {"java": 13, "py": 3}


def java_table(house: Path, java: NewestJava, name: str) -> None:
    keys, parts, options, commits = JAVA[name]
    path = java.ask(
        "create", catalog={"warehouse": f"file://{house}"}, name=f"java.{name}", fields=FIELDS, keys=keys,
        parts=parts, options=options,
    )  # fmt: skip
    for first in range(commits):
        rows = [
            ["+I", [day, key, f"n{key}", f"{key}.25", 1_700_000_000_000_000]]
            for day in (DAYS if parts else DAYS[:1])
            for key in range(first, first + 12)
        ]
        java.ask("write", path=path, rows=rows)
    if name == "users":
        java.ask("createTag", path=path, name="forgotten-release", of=1)
    if name == "sums":
        java.ask("createBranch", path=path, name="try-decimal")
    if name == "schemas":
        java.ask("alter", path=path, change="add", name="extra", type="INT")
        for _ in range(5):
            java.ask("write", path=path, rows=[["+I", ["x", 1, "a", "1.00", 5, 1]]])
        java.ask("compact", path=path, full=True)


def pypaimon_table(house: Path, pypaimon: PypaimonClient, name: str) -> None:
    keys, parts, options = PYPAIMON[name]
    fields = [("k", "BIGINT NOT NULL"), ("p", "STRING NOT NULL"), ("v", "STRING"), ("x", "DOUBLE")]
    path = pypaimon.create(
        house, f"py.{name}", fields, primary_key=keys, partitioned_by=parts, options=options
    )
    for first in range({"tiny": 0, "wait": 1, "wide": 1}.get(name, 4)):
        held = ["a", "b", "ü/x=1"] if parts else ["a"]
        ids = range(first, first + 10)
        pypaimon.write(path, pa.table({
            "k": pa.array([key for _ in held for key in ids], pa.int64()),
            "p": [part for part in held for _ in ids],
            "v": [f"v{key}" for _ in held for key in ids],
            "x": [key / 2 for _ in held for key in ids],
        }))  # fmt: skip
    if name == "keyed":
        pypaimon.create_tag(path, "q1-close", 2)


def written(paths: Sequence[Path]) -> list[Path]:
    """Files by the time at which they were written."""
    return sorted(paths, key=lambda path: path.stat().st_mtime_ns)


def neglect(house: Path) -> None:
    """What years, full disks and people with good intentions have done to them."""
    for table in sorted((*house.glob("java.db/*"), *house.glob("py.db/*"))):
        snapshots = table / "snapshot"
        ids = sorted(int(one.name[9:]) for one in snapshots.glob("snapshot-*"))
        data = written([*table.rglob("data-*.parquet")])
        match table.name:
            case "orders" | "parts":
                for folder in (
                    sorted(table.rglob("bucket-0"))[-1],
                    table / "dt=2019-01-01" / "bucket-0",
                ):
                    folder.mkdir(parents=True, exist_ok=True)
                    (folder / "data-of-a-dead-writer-0.orc").write_bytes(b"x" * 5000)
                    aged(folder / "data-of-a-dead-writer-0.orc")
            case "partial" | "input":
                (table / "consumer").mkdir()
                consumer = table / "consumer" / "consumer-flink-job-7"
                consumer.write_text(
                    '{"nextSnapshot" : 2}' if table.name == "partial" else '{"nextSn'
                )
                aged(consumer)
            case "sums":
                for file in (one for one in (table / "branch").rglob("*") if one.is_file()):
                    aged(file)
            case "vectors":
                written([*(table / "index").iterdir()])[-1].unlink()
            case "hint":
                (snapshots / "LATEST").write_text("99")
                (snapshots / "EARLIEST").write_text("garbage")
            case "gap":
                (snapshots / "snapshot-3").unlink()
            case "manifest":
                manifests = [
                    one for one in (table / "manifest").iterdir() if "list" not in one.name
                ]
                written(manifests)[len(manifests) // 2].unlink()
            case "cut":
                data[-1].write_bytes(data[-1].read_bytes()[:700])
            case "keyed":
                data[0].write_bytes(data[0].read_bytes()[:-50])
            case "emptied":
                (snapshots / f"snapshot-{ids[-1]}").write_bytes(b"")
            case "schemas":
                (table / "schema" / "schema-0").unlink()
            case "leftovers":
                for name in (
                    "snapshot/.snapshot-9.0f2d.tmp",
                    "manifest/manifest-dead-0",
                    "bucket-0/.data-half.tmp",
                ):
                    (table / name).write_text("{")
                    aged(table / name)
            case "old_list" | "logs":
                member = "baseManifestList" if table.name == "old_list" else "deltaManifestList"
                named = json.loads((snapshots / "snapshot-2").read_text())[member]
                (table / "manifest" / named).unlink()
    (house / "py.db" / "junk").mkdir()
    (house / "notes.txt").write_text("ask Jo")
    shutil.copytree(house / "py.db" / "keyed", house / "py.db" / "keyed_backup_2023")


@pytest.fixture(params=["few", pytest.param("all", marks=pytest.mark.sweep)])
def handed(request, java_2: NewestJava, pypaimon: PypaimonClient, tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    whole = request.param == "all"
    for name in list(JAVA)[: None if whole else FEW["java"]]:
        java_table(shell.warehouse, java_2, name)
    for name in list(PYPAIMON)[: None if whole else FEW["py"]]:
        pypaimon_table(shell.warehouse, pypaimon, name)
    neglect(shell.warehouse)
    return shell


def test_a_damaged_warehouse_becomes_healthy_by_what_doctor_prints(
    handed: Shell, java_2: NewestJava
) -> None:
    followed = mended(handed, "--stale-after", "80 d")
    acts = {tuple(command.split()[1:2] + command.split()[3:4]) for command in followed}
    wanted = [("repair", "restore"), ("repair", "latest"), ("repair", "earliest"), ("compact",),
              ("rollback", "--to-snapshot"), ("orphans", "--yes"), ("branch", "java.sums")]  # fmt: skip
    assert {*wanted} <= acts, followed
    (note,) = [one for one in handed.json("doctor") if one["table"] == "java.refused"]
    assert note["severity"] == "note"
    for row in handed.json("tables"):
        if row["table"] != "java.refused":
            handed("verify", row["table"], "--deep")
    for path in sorted((handed.warehouse / "java.db").iterdir()):
        if path.name != "refused":
            ours = lsm.open_table(str(path)).to_arrow()
            assert ours.num_rows == len(java_2.ask("read", path=str(path))), path


@pytest.mark.sweep
def test_one_fix_with_leave_to_lose_does_all_of_it(handed: Shell) -> None:
    handed("doctor", "--fix", "--yes", "--stale-after", "80 d", code=1)
    handed("doctor", "--fix", "--lossy", "--yes", "--stale-after", "80 d")
