"""Bytes written and runs read over many batches of upserts: an LSM tree beside copy on write.

    python -m tests.bench.amplification                           # 500 batches
    python -m tests.bench.amplification --batches 50 --svg /tmp/a.svg

Each batch of `--rows` rows, half of them updates, is upserted by this engine with its default options
and merged into a Delta table by delta-rs. After each batch the bytes of all files ever written are
divided by the bytes that the batches take when they are written once (write amplification), and the
sorted runs that a read has to merge are counted (read amplification; a Delta table has one).
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.bench.contenders import Driven
from tests.bench.measure import Ratio, Samples, arguments, report
from tests.bench.rows import rows
from tests.bench.tables import new_table

POINTS = 60
WIDTH, HEIGHT, EDGE = 640, 300, 46


class Written:
    """Bytes of all data files that have ever been in a folder, also of those that are gone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sizes: dict[str, int] = {}

    def look(self) -> int:
        """Take note of new files; call it after every batch, before anything expires."""
        for path in self.folder.rglob("*.parquet"):
            self.sizes.setdefault(str(path), path.stat().st_size)
        return sum(self.sizes.values())


def batches(count: int, size: int) -> list[pa.Table]:
    """The rows of all batches: half new keys, half updates of any older key."""
    chance = np.random.default_rng(5)
    made, there = [], 0
    for number in range(count):
        again = chance.integers(0, there, size // 2) if there else np.zeros(0, np.int64)
        fresh = np.arange(there, there + size - len(again))
        there += len(fresh)
        made.append(rows(np.unique(np.concatenate([again, fresh])), seed=number))
    return made


def measured(folder: Path, all_batches: Sequence[pa.Table]) -> dict[str, list[float]]:
    """Write and read amplification after each batch, and Delta's write amplification."""
    ours = new_table(folder / "ours", all_batches[0].schema, options={"bucket": "1"})
    plain = new_table(
        folder / "plain", all_batches[0].schema, options={"bucket": "1", "write-only": "true"}
    )
    delta = Driven("deltalake", "deltalake")
    ours_written, once = Written(Path(ours.location)), Written(Path(plain.location))
    delta_written = Written(folder / "delta")
    found: dict[str, list[float]] = {"write": [], "delta write": [], "read": []}
    with delta.client:
        for number, batch in enumerate(all_batches):
            path = folder / "batch.arrow"
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
                writer.write_table(batch)
            if not number:
                delta.open(folder / "delta", path, batch.schema)
            delta.upsert(path)
            ours.upsert(batch)
            plain.upsert(batch)
            base = once.look()
            found["write"].append(ours_written.look() / base)
            found["delta write"].append(delta_written.look() / base)
            found["read"].append(float(max(len(tree.runs) for tree in ours.tree())))
            if number % 25 == 24:
                print(f"  {number + 1} batches: {_last(found)}", flush=True)
    return found


def _last(found: dict[str, list[float]]) -> str:
    return ", ".join(f"{name} {values[-1]:.2f}" for name, values in found.items())


def growth(values: Sequence[float]) -> float:
    """How much more the last value is than the one a quarter of the way: 4 if linear, 1 if flat."""
    return values[-1] / values[len(values) // 4 - 1]


def svg(found: dict[str, list[float]]) -> str:
    """A picture: write amplification of both by batch, and the sorted runs of ours."""
    count = len(found["write"])
    top = max(found["delta write"])
    lines = []
    styles = {
        "delta write": ("#b23b3b", "copy on write (delta-rs MERGE): bytes written per byte"),
        "write": ("#1f6f54", "LSM tree: bytes written per byte"),
        "read": ("#7aa6d8", "LSM tree: sorted runs a read merges"),
    }
    for at, (name, (colour, title)) in enumerate(styles.items()):
        steps = sorted({round(step) for step in np.linspace(0, count - 1, min(POINTS, count))})
        points = " ".join(
            f"{EDGE + step / max(count - 1, 1) * (WIDTH - 2 * EDGE):.1f},"
            f"{HEIGHT - EDGE - found[name][step] / top * (HEIGHT - 2 * EDGE):.1f}"
            for step in steps
        )
        lines.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>'
        )
        lines.append(
            f'<text x="{EDGE + 10}" y="{EDGE + 14 * at}" fill="{colour}">{title}: '
            f"{found[name][-1]:.1f}</text>"
        )
    axes = (
        f'<path d="M{EDGE},{EDGE - 10} V{HEIGHT - EDGE} H{WIDTH - EDGE}" fill="none" stroke="#888"/>'
        f'<text x="{EDGE - 8}" y="{EDGE}" text-anchor="end" fill="#555">{top:.0f}</text>'
        f'<text x="{EDGE - 8}" y="{HEIGHT - EDGE}" text-anchor="end" fill="#555">0</text>'
        f'<text x="{WIDTH - EDGE}" y="{HEIGHT - EDGE + 18}" text-anchor="end" fill="#555">'
        f"{count} batches</text>"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" '
        f'fill="white"/>{axes}{"".join(lines)}</svg>\n'
    )


def main() -> None:
    """Measure as the command line says."""
    parser: argparse.ArgumentParser = arguments(__doc__, rows=2_000, rounds=1)
    parser.add_argument("--batches", type=int, default=500, help="default 500")
    parser.add_argument("--svg", type=Path, help="draw the two there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-amplification-") as scratch:
        found = measured(Path(scratch), batches(given.batches, given.rows))
    if given.svg:
        given.svg.write_text(svg(found))
    ours, theirs = found["write"], found["delta write"]
    ratios = [
        Ratio("write amplification", "deltalake / lsm_engine", (theirs[-1] / ours[-1],), 1.0, True),
        Ratio("write amplification at the end", "lsm_engine", (ours[-1],)),
        Ratio("write amplification at the end", "deltalake", (theirs[-1],)),
        Ratio("its growth over the last three quarters", "lsm_engine", (growth(ours),), 2.0),
        Ratio("its growth over the last three quarters", "deltalake", (growth(theirs),)),
        Ratio("sorted runs to read", "lsm_engine, most", (max(found["read"]),), 8.0),
    ]
    facts = {"batches": given.batches, "rows_each": given.rows}
    report("amplification", ratios, Samples(), facts=facts, out=given.json)


if __name__ == "__main__":
    main()
