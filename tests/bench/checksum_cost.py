"""What does the chain of checksums cost? At most 2 % of the CPU of a write, a plan and a read.

    python -m tests.bench.checksum_cost
    python -m tests.bench.checksum_cost --rows 300000 --rounds 200

Two tables of the same rows, one written and read with the checks, the other without: there CRC-32 is a
constant, data files are opened with no expected checksum, and with `--pages` Parquet's own page checksums are
off as well. The two take turns, in an order that chance decides, some hundred times; the ratio of a round is
that of the CPU seconds of the two, and its median is the figure. Beside it stands the share of the CPU that
was spent within the checks, by the clock of the thread: noise of the machine does not blur that one.
"""

import functools
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import lsm_engine as lsm
from lsm_engine.data_files import formats, reader
from lsm_engine.format import checksum, json_object
from lsm_engine.options.modes import FileFormat
from lsm_engine.storage import checksum as checksum_storage
from tests.bench.measure import Ratio, Samples, arguments, report, stopwatch
from tests.bench.rows import rows
from tests.bench.tables import new_table, warm_up

GOAL = 1.02
ON, OFF = "with", "without"
COMMITS = 40
REPEATED = {"write": 1, "small commit": 3, "plan": 3, "read": 1}


@contextmanager
def checked(*, is_on: bool) -> Iterator[None]:
    """Run the block with the chain's checks, or without."""
    if is_on:
        yield
        return
    expected = checksum_storage.ExpectedChecksums
    with (
        mock.patch.object(checksum, "crc32", return_value=0),
        mock.patch.object(reader, "ExpectedChecksums", return_value=expected()),
    ):
        yield


class Spent:
    """CPU seconds within the checks, of every thread; what one check calls of another counts once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._of_thread = threading.local()

    def timed(self, check: Callable[..., Any]) -> Callable[..., Any]:
        """The same check, whose time counts."""

        @functools.wraps(check)
        def act(*args: Any, **options: Any) -> Any:
            of_thread, began = self._of_thread, time.thread_time()
            outer, of_thread.is_within = getattr(of_thread, "is_within", False), True
            try:
                return check(*args, **options)
            finally:
                of_thread.is_within = outer
                if not outer:
                    self.seconds += time.thread_time() - began

        return act

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count in the block."""
        crc = self.timed(checksum.crc32)
        whole = self.timed(formats.check_whole)
        itself = self.timed(json_object._check_itself)
        with (
            mock.patch.object(checksum, "crc32", crc),
            mock.patch.object(formats, "check_whole", whole),
            mock.patch.object(json_object, "_check_itself", itself),
        ):
            yield


class Pair:
    """Two tables of the same rows and commits, with the checks and without."""

    def __init__(self, folder: Path, file_format: FileFormat, count: int, *, pages: bool) -> None:
        self.file_format = file_format
        self.count = count
        self.batch = rows(np.arange(count), seed=1)
        self.few = rows(np.arange(10), seed=2)
        self.tables: dict[str, lsm.Table] = {}
        self._pages = pages
        for who in (ON, OFF):
            with checked(is_on=who == ON):
                self.tables[who] = self._filled(folder / who, who)

    def _filled(self, folder: Path, who: str) -> lsm.Table:
        options = {
            "write-only": "true",
            "file.format": self.file_format.value,
            "commit.fsync": "false",
            "manifest.merge-min-count": "1000",
        }
        if self._pages and who == OFF:
            options["parquet.page-checksum"] = "false"
        table = new_table(folder, self.batch.schema, options=options)
        table.upsert(self.batch)
        for number in range(COMMITS):
            table.upsert(rows(np.arange(10) + number, seed=number))
        return table

    def act(self, what: str, who: str) -> None:
        """Do one thing to one of the two."""
        table = self.tables[who]
        if what == "write":
            table.upsert(self.batch)
        elif what == "small commit":
            table.upsert(self.few)
        elif what == "plan":
            list(lsm.open_table(table.location).scan().splits())
        else:
            scan = lsm.open_table(table.location).scan()
            assert sum(batch.num_rows for batch in scan.to_batches()) == self.count

    def reset(self) -> None:
        """Take back what was written."""
        for who, table in self.tables.items():
            with checked(is_on=who == ON):
                if table.latest_snapshot().id != COMMITS + 1:
                    table.rollback_to(COMMITS + 1)


def measured(pair: Pair, what: str, rounds: int, samples: Samples) -> tuple[Ratio, float]:
    """The ratios of so many rounds, and the share of the checks in the CPU of those with them."""
    name = f"{what}, {pair.file_format.value}"
    dice = random.Random(what)
    for _ in range(rounds):
        for who in dice.sample([ON, OFF], 2):
            with checked(is_on=who == ON), stopwatch() as spent:
                for _ in range(REPEATED[what]):
                    pair.act(what, who)
            samples.add(name, who, spent())
        pair.reset()
    within = Spent()
    with within.counting(), stopwatch() as spent:
        for _ in range(max(3, rounds // 10)):
            pair.act(what, ON)
    pair.reset()
    return samples.ratio(name, ON, OFF, goal=GOAL), within.seconds / spent().cpu


def main() -> None:
    """Measure as the command line says."""
    parser = arguments(__doc__, rows=100_000, rounds=60)
    parser.add_argument("--pages", action="store_true", help="page checksums count as well")
    given = parser.parse_args()
    samples = Samples(quiet=True)
    ratios, shares = [], {}
    with tempfile.TemporaryDirectory(prefix="bench-checksums-") as scratch:
        warm_up(Path(scratch) / "warm")
        for file_format in FileFormat:
            folder = Path(scratch) / file_format.value
            pair = Pair(folder, file_format, given.rows, pages=given.pages)
            for what in REPEATED:
                ratio, share = measured(pair, what, given.rounds, samples)
                ratios.append(ratio)
                shares[ratio.what] = round(share, 4)
                print(
                    f"{ratio.what}: {ratio.median:.4f}, within the checks {share:.2%}", flush=True
                )
    facts = {"rows": given.rows, "pages": given.pages, "share_of_cpu_within_checks": shares}
    report("checksum_cost", ratios, samples, facts=facts, out=given.json)


if __name__ == "__main__":
    main()
