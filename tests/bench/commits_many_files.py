"""What does a commit of one row cost on a table of very many files? Beside the real clients, in turn.

    python -m tests.bench.commits_many_files --files 1000 100000 --commits 5
    python -m tests.bench.commits_many_files --files 1000000

Tables of metadata alone, as those of planning.py. Each client has a process of its own with a copy of the
table, opens it once, and commits a row of another day each time. The first commit stands alone: what it
reads, later ones may know. CPU of the process.
"""

import shutil
import tempfile
from pathlib import Path

import pyarrow as pa

from tests.bench.contenders import OURS, Contender, Driven, PaimonContender
from tests.bench.many_files import COLUMNS, many_files
from tests.bench.measure import Ratio, Samples, Seconds, arguments, report, wait_for_quiet
from tests.bench.upserts import put
from tests.interop.clients import RustClient

RUST = "pypaimon-rust 0.4.0"


def row_of(number: int) -> pa.Table:
    """One row of a day of its own."""
    texts = {field.name: "a" for field in COLUMNS if pa.types.is_string(field.type)}
    given = {"id": number, **texts, "dt": f"2031-{1 + number // 28 % 12:02}-{1 + number % 28:02}"}
    return pa.Table.from_pylist([given], schema=COLUMNS)


def opened(who: Contender, path: Path) -> None:
    """Open a table that is there."""
    if isinstance(who, PaimonContender):
        who.path = path
    else:
        who.client._call("reopen", path=str(path))


def main() -> None:
    """Measure as the command line says."""
    parser = arguments(__doc__, rows=0, rounds=1)
    parser.add_argument("--files", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--commits", type=int, default=5, help="after the first one, default 5")
    given = parser.parse_args()
    samples, found = Samples(), []
    for count in given.files:
        many: list[Contender] = [Driven(OURS, "ours"), PaimonContender(RUST, RustClient())]
        first, later = f"{count:,} files: first commit", f"{count:,} files: later ones"
        try:
            with tempfile.TemporaryDirectory(prefix="bench-commits-") as scratch:
                made = many_files(Path(scratch) / "made", count)
                for who in many:
                    path = Path(scratch) / who.title[:5]
                    shutil.copytree(made.path, path)
                    opened(who, path)
                for number in range(given.commits + 1):
                    rows = put(Path(scratch) / f"{number}.arrow", row_of(number))
                    for who in many:
                        wait_for_quiet(given.patience)
                        who.upsert(rows)
                        spent = who.client.spent
                        assert spent is not None
                        samples.add(
                            later if number else first, who.title,
                            Seconds(spent.wall_seconds, spent.cpu_seconds),
                        )  # fmt: skip
        finally:
            for who in many:
                who.client.close()
        found += [samples.ratio(what, RUST, OURS) for what in (first, later)]
    ratios: list[Ratio] = found
    report("commits_many_files", ratios, samples, facts={"files": given.files}, out=given.json)


if __name__ == "__main__":
    main()
