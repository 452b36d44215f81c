"""What a day of the sample costs, over a year of them, from the runs that Dagster has recorded; with a plot.

lsm-sample --days 365 --warehouse /tmp/year
python -m tests.bench.sample_year /tmp/year --svg year.svg
"""

import argparse
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path

import dagster as dg

from lsm_assets.home import open_instance
from lsm_assets.sample.release import DAYS_JOB, REFERENCES_JOB
from lsm_assets.settings import WAREHOUSE, settings_from

WIDTH, HEIGHT, EDGE = 760, 300, 46
SPAN = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")


def seconds_per_day(records: Iterable[dg.RunRecord]) -> list[tuple[date, float]]:
    """Return the first day of each period, and the seconds of its runs for each of its days.

    A period is the run that replays its days, with the compactions, feeds and tags that follow it; shorter
    ones, as at the end, are left out. Runs are given oldest first; those of the reference tables belong to none.
    """
    periods: list[tuple[date, int, list[float]]] = []
    for record in records:
        run, begun, ended = record.dagster_run, record.start_time, record.end_time
        if begun is None or ended is None or run.job_name == REFERENCES_JOB:
            continue
        if run.job_name == DAYS_JOB:
            first, last = (date.fromisoformat(run.tags[tag]) for tag in SPAN)
            periods.append((first, (last - first).days + 1, []))
        if periods:
            periods[-1][2].append(ended - begun)
    usual = max((days for _, days, _ in periods), default=0)
    return [(first, sum(seconds) / days) for first, days, seconds in periods if days == usual]


def svg(costs: Sequence[tuple[date, float]]) -> str:
    """Draw seconds per day over the year."""
    top, origin = max(cost for _, cost in costs), costs[0][0]
    length = max((costs[-1][0] - origin).days, 1)
    points = " ".join(
        f"{EDGE + (day - origin).days / length * (WIDTH - 2 * EDGE):.1f},"
        f"{HEIGHT - EDGE - cost / top * (HEIGHT - 2 * EDGE):.1f}"
        for day, cost in costs
    )
    bottom = HEIGHT - EDGE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
        f'<path d="M{EDGE},{EDGE} V{bottom} H{WIDTH - EDGE}" fill="none" stroke="#888"/>'
        f'<polyline fill="none" stroke="#1f6f54" stroke-width="2" points="{points}"/>'
        f'<text x="{EDGE - 6}" y="{EDGE}" text-anchor="end">{top:.1f} s</text>'
        f'<text x="{EDGE}" y="{bottom + 18}">{origin}</text>'
        f'<text x="{WIDTH - EDGE}" y="{bottom + 18}" text-anchor="end">{costs[-1][0]}</text>'
        f'<text x="{EDGE + 8}" y="{EDGE - 8}">seconds by the clock for each day that is replayed</text></svg>\n'
    )


def main() -> None:
    """Print the cost of each period, and draw them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("warehouse", help="what lsm-sample has filled")
    parser.add_argument("--svg", type=Path, help="draw them there")
    given = parser.parse_args()
    with open_instance(settings_from({WAREHOUSE: given.warehouse})) as instance:
        costs = seconds_per_day(instance.get_run_records(ascending=True))
    for day, cost in costs:
        print(f"{day}  {cost:.2f} s a day")
    quarter = max(len(costs) // 4, 1)
    first, last = (sum(cost for _, cost in some) for some in (costs[:quarter], costs[-quarter:]))
    print(f"the last quarter costs {last / first:.2f} of the first")
    if given.svg:
        given.svg.write_text(svg(costs))


if __name__ == "__main__":
    main()
