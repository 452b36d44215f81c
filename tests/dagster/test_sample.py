"""The sample: what is replayed, what it amounts to, and that a second run goes on."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lsm_engine as lsm
from lsm_assets.home import open_instance
from lsm_assets.keys import AssetKind
from lsm_assets.sample.assets import (
    airport_totals,
    carrier_days,
    carrier_days_frame,
    carrier_totals,
    days_filter,
    first_sightings,
)
from lsm_assets.sample.release import FIRST_RELEASE, SECOND_RELEASE, missing_airports
from lsm_assets.sample.replay import LOCATED, late_corrections, replay
from lsm_assets.sample.report import trace_figure, worst_figure
from lsm_assets.sample.run import periods
from lsm_assets.sample.source import read_source, rows_of_day
from lsm_assets.sample.tables import (
    AIRPORTS,
    ARRIVAL,
    ARRIVED_AT,
    CARRIER_DAYS,
    DEPARTED_AT,
    DEPARTURE,
    FED_TABLES,
    FLIGHTS,
    FLIGHTS_KEY,
    SCHEDULE,
    SCHEDULED_AT,
    TABLES,
)
from lsm_assets.settings import WAREHOUSE, settings_from
from lsm_assets.warehouse_component import health_key
from lsm_engine.filter.expression import matches, tree_of
from lsm_engine.spark.session import local_session
from tests.bench.sample_year import seconds_per_day, svg
from tests.dagster.conftest import SAMPLE_DAYS
from tests.dagster.lake import MARKS

FIRST = [date(2013, 1, 1), date(2013, 1, 2)]
# What became of the flights of the first day: 842 were planned, 4 were cancelled.
PLANNED, CANCELLED = 842, 4


def replayed(days: list[date]) -> dict[tuple[object, ...], dict[str, object]]:
    """Apply the changes to a dict, the slow and obvious way; columns that a feed lacks keep their value."""
    rows: dict[tuple[object, ...], dict[str, object]] = {}
    for change in replay(days):
        for row in change.rows.to_pylist():
            key = tuple(row[name] for name in FLIGHTS_KEY)
            if row.pop("_row_kind", "+U") == "-D":
                rows.pop(key, None)
            else:
                rows[key] = {**rows.get(key, dict.fromkeys(FLIGHTS.schema.names)), **row}
    return rows


def corrected(
    rows: dict[tuple[object, ...], dict[str, object]], days: list[date]
) -> dict[tuple[object, ...], dict[str, object]]:
    late = {
        tuple(row[name] for name in FLIGHTS_KEY): row for row in late_corrections(days).to_pylist()
    }
    return {key: {**row, **late.get(key, {})} for key, row in rows.items()}


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
            assert row["outcome"] == (None if flight["arr_delay"] is None else "arrived")


def test_what_became_of_diverted_flights_is_told_late() -> None:
    assert late_corrections(FIRST[:1]).num_rows == 0
    ninth = [date(2013, 1, 9)]
    days = [date(2013, 1, day) for day in range(1, 9)]
    rows = corrected(replayed(days), ninth)
    outcomes = {(row["outcome"], row["arr_delay"] is None) for row in rows.values()}
    assert outcomes == {("arrived", False), ("diverted", True)}
    assert late_corrections(ninth).num_rows == sum(
        row["outcome"] == "diverted" for row in rows.values()
    )


def test_a_feed_tells_its_own_columns_and_its_clock() -> None:
    for change in replay(FIRST):
        told = {name for name in change.rows.schema.names if name != "_row_kind"} - {*FLIGHTS_KEY}
        feeds = {SCHEDULED_AT: SCHEDULE, DEPARTED_AT: DEPARTURE, ARRIVED_AT: ARRIVAL}
        (clock,) = feeds.keys() & told
        assert told == {clock, *feeds[clock]}
        assert not any(change.rows[name].null_count for name in (*FLIGHTS_KEY, clock))


def test_flights_delayed_past_midnight_left_and_landed_the_day_after() -> None:
    day = date(2013, 1, 2)
    flights = {
        tuple(flight[name] for name in FLIGHTS_KEY): flight
        for flight in rows_of_day(read_source("flights"), day).to_pylist()
    }
    late = [0, 0]
    for key, row in replayed([day]).items():
        flight = flights[key]
        start = datetime(2013, 1, 2, tzinfo=UTC)
        minute = flight["sched_dep_time"] // 100 * 60 + flight["sched_dep_time"] % 100
        left = start + timedelta(minutes=minute + flight["dep_delay"])
        assert row[DEPARTED_AT] == left
        assert left.hour * 100 + left.minute == flight["dep_time"] % 2400
        landed = row[ARRIVED_AT]
        if landed is not None:
            assert left <= landed < left + timedelta(days=1)
        late[0] += left.date() > day
        late[1] += landed is not None and landed.date() > day
    assert late[1] > late[0] > 0


def test_totals_of_changes_are_those_of_the_rows() -> None:
    """Whatever was taken back: changes one after the other amount to what is there in the end."""
    rows = pa.Table.from_pylist(list(replayed(FIRST[:1]).values()), schema=FLIGHTS.schema)
    planned = rows.append_column("_row_kind", pa.repeat("+I", rows.num_rows))
    blank = planned.set_column(
        planned.schema.get_field_index("arr_delay"),
        "arr_delay",
        pa.nulls(rows.num_rows, pa.int32()),
    )
    undone = blank.set_column(
        blank.schema.get_field_index("_row_kind"), "_row_kind", pa.repeat("-U", rows.num_rows)
    )
    redone = planned.set_column(
        planned.schema.get_field_index("_row_kind"), "_row_kind", pa.repeat("+U", rows.num_rows)
    )
    changes = pa.concat_tables([blank, undone, redone])
    for made_of, key in ((carrier_totals, "carrier"), (airport_totals, "airport")):
        assert made_of(changes).sort_by(key).equals(made_of(planned).sort_by(key))
    totals = carrier_totals(planned)
    assert pc.sum(totals["scheduled"]).as_py() == rows.num_rows
    assert pc.sum(totals["arr_delay_minutes"]).as_py() == pc.sum(rows["arr_delay"]).as_py()
    first = first_sightings(changes)
    assert first.num_rows == pc.count_distinct(rows["tailnum"]).as_py()


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
@pytest.mark.skipif(SAMPLE_DAYS > 0, reason="of two days")
class TestARun:
    pytestmark = MARKS

    def test_a_second_run_goes_on(self, replayed: Path) -> None:
        lake, told = replayed, replayed.with_name("told.txt").read_text()
        for declaration in TABLES:
            assert declaration.keys.short_name in told
        assert "Where a figure came from" in told
        assert "--days 0 --ui" in told

        with lsm.open_catalog(f"sqlite:///{lake / 'catalog.db'}", warehouse=str(lake)) as catalog:
            check_content(catalog)
            check_origin(catalog)
            check_fed_tables(catalog)
            check_release(catalog)
        with open_instance(settings_from({WAREHOUSE: str(lake)})) as instance:
            looked = instance.fetch_materializations(health_key(), limit=5).records
            costs = seconds_per_day(instance.get_run_records(ascending=True))
            for name, kind in (
                ("shape", AssetKind.MANIFEST_LISTS),
                ("contents", AssetKind.SNAPSHOTS),
            ):
                check = dg.AssetCheckKey(FLIGHTS.keys.asset(kind), name)
                infos = instance.event_log_storage.get_asset_check_partition_info([check])
                statuses = [info.latest_execution_status.value for info in infos]
                assert statuses == ["SUCCEEDED"] * 2, "the newest snapshot of each run was checked"
        tables = [one.asset_materialization.metadata["lsm/tables"].value for one in looked]
        assert tables == [f"{len(TABLES)} of {len(TABLES)} exist"] * 2  # after each run
        assert [day for day, _ in costs] == [date(2013, 1, 1), date(2013, 1, 2)]
        assert all(cost > 0 for _, cost in costs)
        assert "2013-01-02" in svg(costs)


def check_content(catalog: lsm.Catalog) -> None:
    """The tables hold what the source says about the two days."""
    flights = catalog.table(FLIGHTS.name)
    found = {
        tuple(row[name] for name in FLIGHTS_KEY): row
        for row in flights.scan().to_arrow().to_pylist()
    }
    assert found == corrected(replayed(FIRST[:1]), FIRST[1:]) | replayed(FIRST[1:])
    told = [snapshot.properties.get(LOCATED, "") for snapshot in flights.snapshots()]
    assert any("files were read" in text for text in told), (
        "corrections are found by the bloom index"
    )
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
    origin = trace_figure(catalog, figure)
    assert origin is not None
    assert {state.dataset for state in origin.inputs} == {"flights.flights", "flights.airlines"}
    (flights,) = (state for state in origin.inputs if state.dataset == "flights.flights")
    labels = " ".join(commit.label for commit in flights.commits)
    for what in ("schedule", "departures", "arrivals"):
        assert f"{what} {origin.day}" in labels
    assert all(commit.files and commit.run_id == origin.run_id for commit in flights.commits)


def check_fed_tables(catalog: lsm.Catalog) -> None:
    """What was fed from changes, run by run, is what the rows amount to."""
    flights = catalog.table(FLIGHTS.name)
    now = flights.to_arrow()
    now = now.append_column("_row_kind", pa.repeat("+I", now.num_rows))
    for declaration, made_of in zip(FED_TABLES[:2], (carrier_totals, airport_totals), strict=True):
        key = declaration.primary_key[0]
        expected, fed = made_of(now).sort_by(key), catalog.table(declaration.name).to_arrow()
        # A flight that was planned and cancelled leaves zeros behind.
        fed = fed.filter(pc.is_in(fed[key], expected[key])).sort_by(key)
        assert fed.to_pylist() == expected.to_pylist()
        inputs = catalog.lineage.inputs_of_snapshot(lsm.TableName.parse(declaration.name), 1)
        assert inputs["dataset"].to_pylist() == [FLIGHTS.name]
        assert inputs["after_snapshot_id"].to_pylist() == [0]
    sightings = catalog.table(FED_TABLES[2].name).to_arrow().to_pylist()
    first = {row["tailnum"]: row for row in first_sightings(now).to_pylist()}
    assert {row["tailnum"]: row["seen_at"] for row in sightings} == {
        name: row["seen_at"] for name, row in first.items()
    }
    assert {row["airline"] for row in sightings} >= {
        "United Air Lines Inc.",
        "Delta Air Lines Inc.",
    }
    assert {row["manufacturer"] for row in sightings} >= {"BOEING", "EMBRAER"}
    assert sorted(each.name for each in flights.consumers()) == sorted(
        each.keys.identifier for each in FED_TABLES
    )


def check_release(catalog: lsm.Catalog) -> None:
    """A release was corrected on a branch; what was released before is still to be read."""
    airports, missing = catalog.table(AIRPORTS.name), missing_airports()["faa"].to_pylist()
    assert airports.count(where=lsm.col("faa").is_in(missing)) == len(missing)
    assert airports.count(tag=FIRST_RELEASE) == airports.count() - len(missing)
    assert airports.count(tag=SECOND_RELEASE) == airports.count()


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
