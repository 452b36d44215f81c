"""Several real processes publish to one directory: each name has one winner, and its bytes."""

import json
import subprocess
import sys

import pytest

from lsm_engine.storage.local import LocalFileIO

PROCESSES = 4
NAMES = 300
WRITER = """
import json, sys
from lsm_engine.storage.local import LocalFileIO
root, me, names = sys.argv[1], sys.argv[2], int(sys.argv[3])
storage = LocalFileIO(root, durable=False)
print(flush=True)
sys.stdin.readline()  # all start together
won = []
for number in range(names):
    if storage.publish(f"s/{number}", me.encode() * 4096):
        won.append(number)
    else:
        assert len(storage.read(f"s/{number}")) == 4096, "a loser saw a file in the making"
print(json.dumps(won))
"""


@pytest.mark.race
def test_each_name_is_won_once(tmp_path):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(me), str(NAMES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for me in range(PROCESSES)
    ]
    for process in processes:
        process.stdout.readline()
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    outcomes = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    storage = LocalFileIO(str(tmp_path))
    assert sorted(number for won in outcomes for number in won) == list(range(NAMES))
    for me, won in enumerate(outcomes):
        assert all(storage.read(f"s/{number}") == b"%d" % me * 4096 for number in won)
    assert len(storage.list("s")) == NAMES
