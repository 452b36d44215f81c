"""The sample: what is replayed, what it amounts to, and that a second run goes on."""

from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner

import lsm_engine as lsm
from lsm_assets.sample.delays import carrier_days, carrier_days_frame, days_filter
from lsm_assets.sample.origin import origin_of, worst_figure
from lsm_assets.sample.replay import replay
from lsm_assets.sample.run import main, periods
from lsm_assets.sample.source import read_source, rows_of_day
from lsm_assets.sample.tables import CARRIER_DAYS, FLIGHTS, FLIGHTS_KEY, TABLES
from lsm_engine.prune.expression import matches, tree_of
from lsm_engine.spark.session import local_session
from tests.dagster.lake import MARKS

FIRST = [date(2013, 1, 1), date(2013, 1, 2)]
# What became of the flights of the first day: 842 were planned, 4 were cancelled.
PLANNED, CANCELLED = 842, 4


def replayed(days: list[date], **how: bool) -> dict[tuple[object, ...], dict[str, object]]:
    """Apply the changes to a dict, the slow and obvious way; absent columns keep their value."""
    rows: dict[tuple[object, ...], dict[str, object]] = {}
    for change in replay(days, **how):
        for row in change.rows.to_pylist():
            key = tuple(row[name] for name in FLIGHTS_KEY)
            if row.pop("_row_kind", "+U") == "-D":
                rows.pop(key, None)
            elif how.get("whole_rows", True):
                rows[key] = row
            else:
                known = {name: value for name, value in row.items() if value is not None}
                rows[key] = {**rows.get(key, dict.fromkeys(FLIGHTS.schema.names)), **known}
    return rows


def test_a_day_ends_as_the_published_data_says() -> None:
    rows = replayed(FIRST[:1])
    assert len(rows) == PLANNED - CANCELLED
    published = rows_of_day(read_source("flights"), FIRST[0])
    for flight in published.to_pylist():
        row = rows.get(tuple(flight[name] for name in FLIGHTS_KEY))
        assert (row is None) == (flight["dep_time"] is None)
        if row is not None:
            assert row["dep_delay"] == flight["dep_delay"]
            assert row["arr_delay"] == flight["arr_delay"]
            assert row["status"] == ("diverted" if flight["arr_delay"] is None else "arrived")


def test_partial_rows_amount_to_the_same() -> None:
    whole, partial = replayed(FIRST), replayed(FIRST, whole_rows=False)
    for key, row in whole.items():
        # A table that keeps the newest row forgets when a diverted flight landed; the other does not.
        if row["status"] == "arrived":
            assert partial[key] == row
    assert partial.keys() == whole.keys()


def test_every_change_fits_the_table() -> None:
    for change in replay(FIRST):
        schema = change.rows.schema
        assert [name for name in schema.names if name != "_row_kind"] == FLIGHTS.schema.names
        assert not any(change.rows[name].null_count for name in FLIGHTS_KEY)


def test_days_are_cut_into_runs() -> None:
    days = [date(2013, 1, day) for day in (1, 2, 3, 5)]
    assert [len(period) for period in periods(days)] == [3, 1]
    assert [len(period) for period in periods([date(2013, 1, 1 + n) for n in range(10)])] == [8, 2]


def test_the_filter_of_days_keeps_those_days() -> None:
    flights = read_source("flights").select(["month", "day"])
    days = [date(2013, 1, 31), date(2013, 2, 1)]
    flights = flights.cast(pa.schema([("month", pa.int32()), ("day", pa.int32())]))
    kept = (
        flights.filter(pa.array(matches(tree_of(days_filter(days), flights.schema), flights)))
        .group_by(["month", "day"])
        .aggregate([])
    )
    assert sorted(map(tuple, (row.values() for row in kept.to_pylist()))) == [(1, 31), (2, 1)]


@pytest.mark.slow
class TestARun:
    pytestmark = MARKS

    def test_a_second_run_goes_on(self, tmp_path: Path) -> None:
        lake = tmp_path / "lake"
        for _ in range(2):
            told = CliRunner().invoke(
                main, ["--days", "1", "--warehouse", str(lake), "--executor", "local"]
            )
            assert told.exit_code == 0, told.output
        for declaration in TABLES:
            assert declaration.keys.short_name in told.output
        assert "Where a figure came from" in told.output
        assert "--days 0 --ui" in told.output

        with lsm.open_catalog(f"sqlite:///{lake / 'catalog.db'}", warehouse=str(lake)) as catalog:
            check_content(catalog)
            check_origin(catalog)


def check_content(catalog: lsm.Catalog) -> None:
    """The tables hold what the source says about the two days."""
    flights = catalog.table(FLIGHTS.name)
    found = {
        tuple(row[name] for name in FLIGHTS_KEY): row
        for row in flights.scan().to_arrow().to_pylist()
    }
    assert found == replayed(FIRST[:1]) | replayed(FIRST[1:])
    assert [tag.name for tag in flights.tags()] == ["2013-01-01", "2013-01-02"]
    assert max(bucket.run_count for bucket in flights.pressure()) < 5

    figures = catalog.table(CARRIER_DAYS.name).scan().to_arrow()
    expected = carrier_days(flights.scan().to_arrow(), read_source("airlines"))
    order = [("day", "ascending"), ("carrier", "ascending")]
    assert figures.sort_by(order).to_pylist() == expected.sort_by(order).to_pylist()


def check_origin(catalog: lsm.Catalog) -> None:
    """A figure leads to the commits and files that it was computed from."""
    figure = worst_figure(catalog)
    assert figure is not None
    origin = origin_of(catalog, figure)
    assert origin is not None
    assert {state.dataset for state in origin.inputs} == {"flights.flights", "flights.airlines"}
    (flights,) = (state for state in origin.inputs if state.dataset == "flights.flights")
    labels = " ".join(commit.label for commit in flights.commits)
    for what in ("schedule", "departures", "arrivals"):
        assert f"{what} {origin.day}" in labels
    assert all(commit.files and commit.run_id == origin.run_id for commit in flights.commits)


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_spark_computes_the_same_figures() -> None:
    flights, airlines = rows_of_day(read_source("flights"), FIRST[0]), read_source("airlines")
    expected = carrier_days(flights, airlines).sort_by("carrier")
    spark = local_session()
    frame = carrier_days_frame(spark.createDataFrame(flights), spark.createDataFrame(airlines))
    found = frame.toArrow().cast(expected.schema).sort_by("carrier")
    for name in expected.schema.names:
        same = pc.equal(found[name], expected[name])
        if pa.types.is_floating(expected.schema.field(name).type):
            same = pc.less(pc.abs(pc.subtract(found[name], expected[name])), 1e-9)
        assert pc.all(same).as_py(), name
