"""One writer of a race on an object store: `race_worker.py LOCATION NUMBER COMMITS`."""

import sys

import pyarrow as pa

import lsm_engine as lsm
from lsm_engine.base.errors import CommitUnknownError

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64())])
OPTIONS = {
    "bucket": "1",
    "merge-engine": "aggregation",
    "fields.n.aggregate-function": "sum",
    "num-sorted-run.compaction-trigger": "1000",
    "num-sorted-run.stop-trigger": "1000",
    "commit.timeout": "1 h",
}
EVERYBODY = 1_000


def main(location: str, number: int, commits: int) -> None:
    """Add one to the own sum and to everybody's, again and again; an unknown commit is sent again.

    Its user and identifier make that a replay: it is a no-op if the first attempt is there.
    """
    table = lsm.open_table(location)
    for identifier in range(1, commits + 1):
        rows = pa.table({"k": [number, EVERYBODY], "n": [1, 1]}, schema=SCHEMA)
        while True:
            try:
                table.upsert(rows, commit_user=f"writer-{number}", commit_identifier=identifier)
                break
            except CommitUnknownError:
                print(f"writer {number} sends {identifier} again", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
