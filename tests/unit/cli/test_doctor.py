"""`lsm doctor`: whatever is wrong is found, and the command that is printed mends it."""

import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import lsm_engine as lsm

DAY = 24 * 3600
ROWS = [{"id": key, "v": "x" * key} for key in range(6)]


def table_of(shell, *, key="id", commits: int = 1, **options: str):
    """shop.orders with some commits, of which none compacts or expires anything."""
    named = {name.replace("__", "-").replace("_", "."): text for name, text in options.items()}
    with shell.catalog() as catalog:
        table = catalog.create_table(
            "shop.orders", {"id": "BIGINT", "v": "STRING"}, primary_key=key, options={"write-only": "true", **named}
        )  # fmt: skip
        for at in range(commits):
            (table.upsert if key else table.append)([{"id": at, "v": f"{at}"}, *ROWS])
        return table


def aged(path: Path, days: int = 60) -> None:
    then = path.stat().st_mtime - days * DAY
    os.utime(path, (then, then))


def directory(shell) -> Path:
    return shell.warehouse / "shop.db" / "orders"


def data_files(shell) -> list[Path]:
    return sorted(
        directory(shell).glob("bucket-*/*.parquet"), key=lambda path: path.stat().st_mtime
    )


def debt(shell) -> None:
    table_of(shell, commits=6)


def small_files(shell) -> None:
    table_of(shell, key=(), commits=6, bucket="-1")


def rows_that_wait(shell) -> None:
    table_of(shell, bucket="-2", postpone_batch__write__fixed__bucket="false")


def too_many_buckets(shell) -> None:
    table_of(shell, bucket="64")


def snapshots_past_their_time(shell) -> None:
    table_of(shell, commits=14, snapshot_num__retained_min="1", snapshot_time__retained="1 ms",
             num__sorted__run_compaction__trigger="99")  # fmt: skip


def tag_past_its_time(shell) -> None:
    table_of(shell).create_tag("short", retained="1 ms")


def forgotten_tag(shell) -> None:
    table_of(shell).create_tag("old")


def forgotten_branch(shell) -> None:
    table_of(shell).create_branch("try")
    aged(directory(shell) / "branch" / "branch-try" / "schema" / "schema-0")


def stale_consumer(shell) -> None:
    table_of(shell).reset_consumer("etl", 1)
    aged(directory(shell) / "consumer" / "consumer-etl")


def orphans(shell) -> None:
    table_of(shell)
    lost = directory(shell) / "bucket-0" / "data-0-0.parquet"
    lost.write_bytes(b"of a writer that died")
    aged(lost)


def damaged_file(shell) -> None:
    table_of(shell, commits=3)
    (file, *_) = data_files(shell)
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 255
    file.write_bytes(data)


def missing_file(shell) -> None:
    table_of(shell, commits=3)
    data_files(shell)[-1].unlink()


def missing_file_that_can_be_made_again(shell) -> None:
    table = table_of(shell, commits=6)
    table.compact(full=True)
    data_files(shell)[-1].unlink()


def missing_file_of_old_snapshots(shell) -> None:
    table = table_of(shell, commits=6)
    table.create_tag("early", 2)
    table.compact(full=True)
    data_files(shell)[0].unlink()


def damaged_old_snapshot(shell) -> None:
    table_of(shell, commits=4)
    (directory(shell) / "snapshot" / "snapshot-2").write_text("{")


def damaged_tag(shell) -> None:
    table_of(shell).create_tag("broken")
    (directory(shell) / "tag" / "tag-broken").write_text("{")


def table_gone(shell) -> None:
    table_of(shell)
    shutil.rmtree(directory(shell))


def table_unknown(shell) -> None:
    table_of(shell)
    with shell.catalog() as catalog:
        catalog.unregister_table("shop.orders")


def recorded(shell) -> None:
    """Have the lineage follow the files, before others change them."""
    with shell.catalog() as catalog:
        catalog.sync_lineage()


def rollback_by_others(shell) -> None:
    """And commits after it, as many as were rolled back: the same ids with other files."""
    table_of(shell, commits=4)
    recorded(shell)
    other = lsm.open_table(str(directory(shell)))
    other.rollback_to(2)
    other.upsert(ROWS)


def expiry_by_others(shell) -> None:
    table_of(shell, commits=4)
    recorded(shell)
    lsm.open_table(str(directory(shell))).expire_snapshots(
        retain_max=2, retain_min=1, older_than="0 s"
    )


def branch_of(shell):
    """A branch of shop.orders with a commit of its own."""
    table = table_of(shell, commits=2)
    table.create_tag("start")
    table.create_branch("work", tag="start")
    table.branch("work").upsert(ROWS)
    recorded(shell)


def rollback_of_a_branch_by_others(shell) -> None:
    branch_of(shell)
    other = lsm.open_table(str(directory(shell))).branch("work")
    other.rollback_to(2)
    other.upsert(ROWS)


def branch_deleted_by_others(shell) -> None:
    branch_of(shell)
    lsm.open_table(str(directory(shell))).delete_branch("work")


def options_at_odds(shell) -> None:
    table_of(shell, num__sorted__run_stop__trigger="2", num__sorted__run_compaction__trigger="5")


STORIES: dict[Callable, tuple[str, str]] = {
    debt: ("debt", "shallow"),
    small_files: ("small-files", "shallow"),
    rows_that_wait: ("debt", "shallow"),
    too_many_buckets: ("buckets", "shallow"),
    snapshots_past_their_time: ("retention", "shallow"),
    tag_past_its_time: ("retention", "shallow"),
    forgotten_tag: ("retention", "shallow"),
    forgotten_branch: ("retention", "shallow"),
    stale_consumer: ("consumers", "shallow"),
    options_at_odds: ("options", "shallow"),
    rollback_by_others: ("catalog", "whole"),
    expiry_by_others: ("catalog", "shallow"),
    rollback_of_a_branch_by_others: ("catalog", "whole"),
    branch_deleted_by_others: ("catalog", "shallow"),
    table_gone: ("catalog", "shallow"),
    table_unknown: ("catalog", "shallow"),
    orphans: ("orphans", "whole"),
    missing_file: ("damage", "whole"),
    missing_file_that_can_be_made_again: ("damage", "whole"),
    missing_file_of_old_snapshots: ("damage", "whole"),
    damaged_old_snapshot: ("damage", "whole"),
    damaged_tag: ("damage", "whole"),
    damaged_file: ("damage", "deep"),
}


def followed(shell, *words: str) -> None:
    """Do what `lsm doctor` prints until it is content."""
    done = []
    for _ in range(6):
        found = shell.json(*words, code=(0, 1))
        commands = [one["command"] for one in found if one["command"]]
        if not commands:
            break
        for command in commands:
            done.append(shlex.join(command))
            shell(*command)
    assert found == [], (done, found)
    assert "healthy" in shell(*words).stdout
    shown = [shell(command.split()[0], "--help").exit_code for command in done]
    assert not any(shown)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_what_doctor_finds_is_mended_by_the_commands_it_prints(shell, story):
    story(shell)
    kind, depth = STORIES[story]
    words = ["doctor", *([] if depth == "whole" else [f"--{depth}"])]
    if story is forgotten_tag:
        words += ["--stale-after", "0 s"]
    first = shell.json(*words, code=(0, 1))
    assert kind in [one["kind"] for one in first], first
    assert all(one["cost"] for one in first)
    followed(shell, *words)


def test_lineage_of_branches_is_in_step_whatever_becomes_of_them(shell):
    branch_of(shell)

    def of_branches() -> dict[str, list[int]]:
        lines = shell.json("show", "commits")
        found: dict[str, list[int]] = {}
        for line in lines:
            if line["branch"] is not None:
                found.setdefault(line["branch"], []).append(line["snapshot_id"])
        return {name: sorted(ids) for name, ids in found.items()}

    assert of_branches() == {"work": [2, 3]}
    table = shell.catalog().table("shop.orders")
    table.rename_branch("work", "play")
    assert of_branches() == {"play": [2, 3]}
    table.rename_branch("play", "work")
    table.branch("work").upsert(ROWS)
    assert of_branches() == {"work": [2, 3, 4]}
    assert shell.json("doctor") == []
    table.fast_forward("work")
    assert shell.json("doctor") == []
    table.delete_branch("work")
    assert of_branches() == {}
    assert shell.json("doctor") == []


def test_printed_commands_can_be_copied_into_a_shell(shell):
    forgotten_tag(shell)
    printed = shell("doctor", "--stale-after", "0 s", "--warehouse", shell.warehouse, code=1).stdout
    (line,) = [line for line in printed.splitlines() if line.lstrip().startswith("lsm ")]
    program, *words = shlex.split(line)
    assert program == "lsm"
    assert "--warehouse" in words
    shell(*words)
    assert "healthy: 1 table" in shell("doctor", "--stale-after", "0 s").stdout


def test_fix_shows_its_plan_and_asks(shell):
    debt(shell)
    table = shell.catalog().table("shop.orders")
    table.create_tag("old")
    asked = shell("doctor", "--stale-after", "0 s", "--fix", input="n\n", code=1)
    assert "lsm compact shop.orders" in asked.stdout
    assert "Run 1 command?" in asked.stderr
    assert len(table.snapshots()) == 6
    done = shell("doctor", "--stale-after", "0 s", "--fix", "--yes", code=1)
    assert "compacted 1 bucket" in done.stdout
    assert "--lossy" in done.stderr
    assert [tag.name for tag in table.tags()] == ["old"]
    shell("doctor", "--stale-after", "0 s", "--fix", "--yes", "--lossy")
    assert table.tags() == []


def test_a_database_a_table_and_a_path_can_be_examined(shell):
    debt(shell)
    with shell.catalog() as catalog:
        catalog.create_table("other.t", {"id": "BIGINT"}, primary_key="id")
    assert shell.json("doctor", "other") == []
    assert {one["table"] for one in shell.json("doctor", "shop", code=1)} == {"shop.orders"}
    assert len(shell.json("doctor", "shop.orders", "--deep", code=1)) == 1
    (found,) = shell.json("doctor", directory(shell), code=1)
    shell(*found["command"])
    assert shell.json("doctor", directory(shell)) == []
    shell("doctor", "shop.nothing", code=3)
    shell("doctor", "--deep", "--shallow", code=2)
    shell("doctor", "--stale-after", "soon", code=5)


def test_a_table_that_cannot_be_opened_is_a_finding_and_hides_no_other(shell):
    debt(shell)
    with shell.catalog() as catalog:
        catalog.create_table("shop.broken", {"id": "BIGINT"}, primary_key="id")
    (shell.warehouse / "shop.db" / "broken" / "schema" / "schema-0").write_text("{")
    found = {one["table"]: one for one in shell.json("doctor", code=1)}
    assert found["shop.broken"]["kind"] == "damage"
    assert found["shop.orders"]["kind"] == "debt"
