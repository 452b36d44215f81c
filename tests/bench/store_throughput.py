"""Scans and uploads on a local S3 server, against PyArrow's own S3 client with the same objects.

    python -m tests.bench.store_throughput --rows 12000000 --rounds 5      # 1 GB

The server is S3Proxy over a directory, another process of this machine: its share of the cores is in the clock of
both, and not in the CPU seconds, which are those of this process. The scan is of a table's every column, from
files that need no merging; PyArrow reads the same objects, all columns too, by its dataset. The upload is of as many
bytes, in objects of 256 MB written in pieces of 1 MB. Goals: a scan and an upload take at most 1.25 times as long (0.8 of
the throughput).
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import S3FileSystem

import lsm_engine as lsm
from lsm_engine.storage.options import StorageOptions
from lsm_engine.storage.warehouse import open_directory
from tests.bench.measure import (
    Samples,
    arguments,
    report,
    rotated,
    stopwatch,
    wait_for_quiet,
)
from tests.stores import servers
from tests.stores.servers import StoreServer
from tests.stores.stored_tables import location, options

GOAL = 1.25
COLUMNS = 9
_CHUNK_ROWS = 2_000_000
_OBJECT_BYTES = 256 << 20
_PIECE = 1 << 20
_OPTIONS = {
    "bucket": "4",
    "write-only": "true",
    "target-file-size": "128 mb",
    "write-buffer-size": "256 mb",
}


def rows(first: int, count: int) -> pa.Table:
    """Numbers that no codec makes smaller."""
    chance = np.random.default_rng(first)
    columns = {f"v{number}": chance.random(count) for number in range(COLUMNS)}
    return pa.table({"id": np.arange(first, first + count), **columns})


def filled(server: StoreServer, scratch: Path, count: int) -> lsm.Table:
    """A table of `count` rows, one sorted run a bucket."""
    storage = dict(options(server))
    url = f"sqlite:///{scratch}/catalog.db"
    with lsm.open_catalog(url, warehouse=location(server, "bench"), storage=storage) as catalog:
        catalog.create_database("a")
        schema = rows(0, 1).schema
        table = catalog.create_table("a.t", schema, primary_key=["id"], options=_OPTIONS)
        for first in range(0, count, _CHUNK_ROWS):
            table.upsert(rows(first, min(_CHUNK_ROWS, count - first)))
        table.compact(full=True)
    return lsm.open_table(table.location, storage=storage)


def arrow_client(server: StoreServer) -> S3FileSystem:
    """PyArrow's client of the same server."""
    return S3FileSystem(
        access_key=server.access_key, secret_key=server.secret_key, scheme="http",
        endpoint_override=f"{server.host}:{server.port}", region=server.region,
    )  # fmt: skip


def scans(
    table: lsm.Table, server: StoreServer, count: int
) -> tuple[int, dict[str, Callable[[], None]]]:
    """The bytes of the table's objects, and who reads them."""
    splits = table.scan().plan.splits
    files = [(split.bucket, file) for split in splits for file in split.files]
    root = table.location.removeprefix("s3://")
    names = [f"{root}/bucket-{bucket}/{file.file_name}" for bucket, file in files]
    client = arrow_client(server)

    def ours() -> None:
        assert sum(batch.num_rows for batch in table.scan().to_batches()) == count

    def arrows() -> None:
        batches = ds.dataset(names, filesystem=client, format="parquet").to_batches()
        assert sum(batch.num_rows for batch in batches) == count

    return sum(file.file_size for _, file in files), {"ours": ours, "pyarrow": arrows}


def uploads(server: StoreServer, size: int) -> dict[str, Callable[[], None]]:
    """Who writes `size` bytes."""
    piece = np.random.default_rng(0).bytes(_PIECE)
    where = location(server, "uploads")
    storage = open_directory(where, storage=StorageOptions(options(server)))
    client = arrow_client(server)

    def written(open_output: Callable[[str], Any]) -> None:
        for number in range(-(-size // _OBJECT_BYTES)):
            output = open_output(f"{number}")
            for _ in range(min(_OBJECT_BYTES, size - number * _OBJECT_BYTES) // _PIECE):
                output.write(piece)
            output.close()

    def ours() -> None:
        written(storage.open_output)

    def arrows() -> None:
        root = where.removeprefix("s3://")
        written(lambda name: client.open_output_stream(f"{root}/arrow-{name}"))

    return {"ours": ours, "pyarrow": arrows}


def main() -> None:
    """Measure and print."""
    chosen = arguments(__doc__, rows=12_000_000, rounds=5).parse_args()
    samples = Samples()
    with (
        tempfile.TemporaryDirectory() as scratch,
        servers.s3proxy(Path(scratch) / "s3") as server,
    ):
        size, scanning = scans(filled(server, Path(scratch), chosen.rows), server, chosen.rows)
        acts = {"scan": scanning, "upload": uploads(server, size)}
        for number in range(chosen.rounds + 1):
            wait_for_quiet(chosen.patience)
            for what, who in acts.items():
                for name, act in rotated(list(who.items()), number):
                    with stopwatch() as spent:
                        act()
                    if number:  # the first round warms caches and compiles
                        samples.add(what, name, spent())
    ratios = [
        samples.ratio(what, "ours", "pyarrow", kind=kind, goal=GOAL if kind == "wall" else None)
        for what in acts
        for kind in ("wall", "cpu")
    ]
    report("store_throughput", ratios, samples, facts={"megabytes": size >> 20}, out=chosen.json)


if __name__ == "__main__":
    main()
