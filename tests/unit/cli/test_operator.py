"""An operator who is new to it is handed a warehouse of others, and does nothing but what `lsm` prints.

Tables that Java and pypaimon made, without a catalog; then damage, debt, orphans, forgotten tags, branches and
consumers, and a catalog that is broken on top. Starts at `lsm doctor`, ends when it is content.
"""

import os
import shlex
import shutil
from pathlib import Path

import pytest

import lsm_engine as engine

NEEDED = {
    "java-0.9.0": [
        "aggregation",
        "changelog_none",
        "dedup_sequence",
        "levels",
        "pk_basic",
        "pk_partitioned",
    ],
    "pypaimon-2.1.0": ["pk_composite"],
}
FIXTURES = Path(__file__).parents[2] / "fixtures"
JAVA = ["aggregation", "append_bucketed", "append_unaware", "changelog_full_compaction", "changelog_lookup", "changelog_none", "dedup_sequence", "deletion_vectors", "first_row", "levels", "partial_update", "pk_basic", "pk_dynamic_bucket", "pk_partitioned"]  # fmt: skip
PYPAIMON = [
    "aggregation",
    "append_unaware",
    "overwrite",
    "pk_basic",
    "pk_composite",
    "pk_postpone",
    "types_parquet",
]
DAYS = 90 * 24 * 3600


WHOLE = {"java-0.9.0": JAVA, "pypaimon-2.1.0": PYPAIMON}


@pytest.fixture(
    params=[NEEDED, pytest.param(WHOLE, marks=pytest.mark.sweep)], ids=["few", "21 tables"]
)
def handed(shell, request):
    """The warehouse as it is handed over: tables, and nothing else."""
    for client, names in request.param.items():
        for name in names:
            (table,) = {
                path.parent.parent
                for path in (FIXTURES / client / name).rglob("schema/schema-0")
                if "branch" not in str(path)
            }
            shutil.copytree(table, shell.warehouse / f"{client.partition('-')[0]}.db" / name)
    return shell


def aged(path: Path) -> None:
    then = path.stat().st_mtime - DAYS
    os.utime(path, (then, then))


def neglected(shell) -> None:
    """What years without an operator do to tables."""
    house = shell.warehouse

    def opened(name: str) -> engine.Table:
        return engine.open_table(str(house / name.replace(".", ".db/", 1)))

    keyed = opened("java.pk_basic")
    keyed.alter(engine.SetOption("write-only", "true"))
    keyed = opened("java.pk_basic")
    rows = keyed.scan().to_arrow()
    for _ in range(7):
        keyed.upsert(rows)
    opened("java.aggregation").create_tag("before-the-move")
    opened("java.changelog_none").reset_consumer("etl-of-someone", 1)
    aged(house / "java.db" / "changelog_none" / "consumer" / "consumer-etl-of-someone")
    opened("java.levels").create_branch("attempt")
    aged(house / "java.db" / "levels" / "branch" / "branch-attempt" / "schema" / "schema-0")
    lost = house / "java.db" / "dedup_sequence" / "bucket-0" / "data-of-a-writer-that-died.parquet"
    lost.write_bytes(b"half a file")
    aged(lost)
    broken = sorted((house / "pypaimon.db" / "pk_composite").rglob("bucket-*/*.parquet"))[-1]
    broken.unlink()
    shutil.copytree(house / "java.db" / "pk_partitioned", house / "java.db" / "copy_of_it")


def mended(shell, *words: str) -> list[str]:
    """Do what `lsm doctor` prints until it is content; the commands."""
    followed: list[str] = []
    for _ in range(12):
        seen = shell("doctor", *words, code=(0, 1, 9))
        printed = [
            line.strip() for line in seen.stdout.splitlines() if line.startswith("        lsm ")
        ]
        if seen.exit_code == 9:
            printed = [seen.stderr.partition("; mend it: ")[2].strip()]
        if not printed:
            break
        for command in printed:
            followed.append(command)
            shell(*shlex.split(command)[1:])
    assert seen.exit_code == 0, (seen.output, followed)
    return followed


def test_a_neglected_warehouse_of_others_becomes_healthy_by_what_doctor_prints(handed):
    neglected(handed)
    with_tag = engine.open_table(str(handed.warehouse / "java.db" / "aggregation"))
    assert [tag.name for tag in with_tag.tags()][-1] == "before-the-move"
    (handed.warehouse / "catalog.db").write_bytes(b"SQLite format 3\0 and then rubbish" * 40)
    followed = mended(handed, "--stale-after", "80 d")
    verbs = {command.split()[1] for command in followed}
    assert {"catalog", "compact", "consumer", "branch", "orphans", "repair"} <= verbs, followed
    for name in handed.json("tables"):
        handed("count", name["table"])
    assert handed("verify", "pypaimon.pk_composite").exit_code == 0


@pytest.mark.parametrize("name", ["levels", "first_row", "partial_update"])
def test_what_a_compaction_of_java_made_is_not_promised_to_be_made_again(shell, name):
    """It has no checksum; of a partial update older rows would be merged twice."""
    (made,) = {path.parent.parent for path in (FIXTURES / "java-0.9.0" / name).glob("**/schema-0")}
    path = shell.warehouse / "java.db" / name
    shutil.copytree(made, path)
    compacted = [
        one for one in engine.open_table(str(path)).system("files").to_pylist() if one["level"]
    ]
    (path / compacted[0]["file_path"]).unlink()
    followed = mended(shell, "--stale-after", "80 d")
    mends = [command.split()[3] for command in followed if command.split()[1] == "repair"]
    assert mends == ["damaged-files" if name == "partial_update" else "restore"], followed
    shell("verify", f"java.{name}", "--deep")


def test_what_others_made_is_seen_without_a_catalog_and_without_a_change(handed):
    before = {
        path: path.stat().st_mtime_ns for path in handed.warehouse.rglob("*") if path.is_file()
    }
    found = handed.json("doctor", code=(0, 1))
    assert all(one["command"] is None or one["command"][0] != "catalog" for one in found)
    assert len(handed.json("tables")) in (7, len(JAVA) + len(PYPAIMON))
    for name in ("java.pk_basic", "pypaimon.pk_composite"):
        for verb in ("schema", "tree", "snapshots", "files", "verify"):
            handed(verb, name)
    assert {
        path: path.stat().st_mtime_ns for path in handed.warehouse.rglob("*") if path.is_file()
    } == before
