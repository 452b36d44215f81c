"""`lsm` as a process of its own: pipes, standard input, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = [sys.executable, "-m", "lsm_engine.cli.main"]


def run(shell, *arguments: object, **extra) -> subprocess.CompletedProcess:
    return subprocess.run(
        [*PROGRAM, *map(str, arguments)], cwd=shell.directory, env=environment(shell),
        capture_output=True, text=True, timeout=120, check=False, **extra,
    )  # fmt: skip


def environment(shell) -> dict[str, str]:
    root = str(Path(__file__).parents[3])
    return {**os.environ, "LSM_WAREHOUSE": str(shell.warehouse), "PYTHONPATH": root}


@pytest.mark.slow
def test_json_pipes_into_upsert(shop) -> None:
    rows = run(shop, "scan", "shop.orders", "--json").stdout
    assert len(rows.splitlines()) == 3
    done = run(shop, "upsert", "shop.orders", "-", "--format", "jsonl", "--json", input=rows)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 3
    assert run(shop, "scan", "shop.orders", "--json").stdout == rows


@pytest.mark.slow
def test_piped_output_has_no_colours_and_is_not_cut(shop) -> None:
    done = run(shop, "files", "shop.orders")
    assert "\x1b" not in done.stdout + done.stderr
    paths = [row["file_path"] for row in shop.json("files", "shop.orders")]
    assert [path for path in paths if path in done.stdout] == paths


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", ["scan a.b --json", "export a.b - --format csv", "export a.b - --format jsonl"]
)  # fmt: skip
def test_a_reader_that_leaves_is_no_error_to_look_at(shell, words) -> None:
    text = "x" * 80  # more than a pipe takes without a reader
    source = shell.file("x.csv", "id,text\n" + "".join(f"{n},{text}\n" for n in range(50_000)))
    shell("create", "a.b", "--from", source, "--primary-key", "id")
    shell("upsert", "a.b", source)
    command = subprocess.Popen(
        [*PROGRAM, *words.split()], env=environment(shell),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert command.stdout is not None
    assert command.stderr is not None
    command.stdout.readline()
    command.stdout.close()
    assert command.stderr.read() == b""
    assert command.wait(60) == 141


@pytest.mark.slow
def test_ctrl_c_leaves_the_table_as_it_was(shop) -> None:
    command = subprocess.Popen(
        [*PROGRAM, "upsert", "shop.orders", "-", "--format", "csv"], env=environment(shop),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert command.stdin is not None
    block = b"".join(b"%d,mon\n" % number for number in range(1_000_000))
    try:
        # More than one block: once it is taken, the upsert is under way and waits for more.
        command.stdin.write(b"order_id,day\n" + block + block)
        command.stdin.flush()
        command.send_signal(signal.SIGINT)
        _, told = command.communicate(timeout=60)
    finally:
        command.kill()
    assert command.returncode == 130, told
    assert b"Traceback" not in told
    assert b"the table is as it was" in told
    assert len(shop.json("snapshots", "shop.orders")) == 3
    assert shop.json("verify", "shop.orders")[0]["clean"]
    assert len(list(shop.warehouse.rglob("*.parquet"))) == 3
