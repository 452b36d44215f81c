"""An operator is handed tables that Java 1.4.2 and pypaimon 2.1.0 wrote, and does what `lsm doctor` prints.

Every merge engine, several formats and bucket modes; indebted, damaged, with orphans, forgotten tags and a
broken catalog on top. 20 tables and more with `-m sweep`, a sample of them otherwise.
"""

import random
import shutil
from pathlib import Path

import pytest

import lsm_engine as lsm
from tests.interop.newest_histories import ENGINES, History
from tests.interop.newest_java import NewestJava
from tests.unit.cli.conftest import Shell
from tests.unit.cli.test_operator import FIXTURES, PYPAIMON, aged, mended

pytestmark = pytest.mark.interop
FEW = ["deduplicate", "sums", "append", "groups"]


def by_java(folder: Path, java: NewestJava, engine: str, seed: int) -> None:
    """A table of a merge engine whose rows, compactions and tags are all Java's."""
    both = History.begin(folder, java, random.Random(f"story {seed} {engine}"), engine)
    for _ in range(7):
        if both.kind.java_writes:
            both._write(ours=False)
    both._compact(ours=False, full=False)
    for _ in range(3):
        if both.kind.java_writes:
            both._write(ours=False)
    both._tag(ours=False)


@pytest.fixture(
    params=[
        (FEW, PYPAIMON[3:5], 1),
        pytest.param(([*ENGINES], PYPAIMON, 2), marks=pytest.mark.sweep),
    ],
    ids=["few", "29 tables"],
)
def handed(request, java_2: NewestJava, tmp_path: Path) -> Shell:
    """The warehouse as it is handed over: tables, and no catalog."""
    shell = Shell(tmp_path)
    engines, names, times = request.param
    for seed in range(times):
        for at, engine in enumerate(engines):
            by_java(shell.warehouse / "java.db" / f"t{seed}{at:02}", java_2, engine, seed)
    for name in names:
        (table,) = {
            path.parent.parent
            for path in (FIXTURES / "pypaimon-2.1.0" / name).rglob("schema/schema-0")
        }
        shutil.copytree(table, shell.warehouse / "pypaimon.db" / name)
    return shell


def test_what_java_and_pypaimon_left_becomes_healthy_by_what_doctor_prints(
    handed: Shell, java_2: NewestJava
) -> None:
    java = handed.warehouse / "java.db"
    for table in sorted(java.iterdir())[::3]:
        for tag in table.glob("tag/tag-*"):
            aged(tag)
        orphan = table / "bucket-0" / "data-of-a-writer-that-died.parquet"
        orphan.parent.mkdir(exist_ok=True)
        orphan.write_bytes(b"half a file")
        aged(orphan)
    broken = sorted((handed.warehouse / "pypaimon.db" / "pk_composite").rglob("bucket-*/*.parquet"))
    broken[-1].unlink()
    (handed.warehouse / "catalog.db").write_bytes(b"SQLite format 3\0 and then rubbish" * 40)
    followed = mended(handed, "--stale-after", "80 d")
    verbs = {command.split()[1] for command in followed}
    assert {"catalog", "orphans", "repair"} <= verbs, followed
    for path in sorted(java.iterdir()):
        ours = lsm.open_table(str(path)).to_arrow().to_pylist()
        theirs = java_2.ask("read", path=str(path))
        assert sorted(([*row.values()] for row in ours), key=repr) == sorted(theirs, key=repr)
    for row in handed.json("tables"):
        handed("verify", row["table"])
