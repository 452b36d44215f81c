"""Rows computed from changes of flights: totals of carriers and airports, first sightings of aircraft."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lsm_assets.sample.source import cast_columns
from lsm_assets.sample.tables import (
    AIRPORT_TOTALS,
    CARRIER_TOTALS,
    DEPARTED_AT,
    SIGHTINGS,
)

CHANGE_COLUMNS = (
    "carrier",
    "flight",
    "origin",
    "dest",
    "tailnum",
    "dep_time",
    "arr_delay",
    DEPARTED_AT,
)


def carrier_totals(changes: pa.Table) -> pa.Table:
    """Return the amounts that changes of flights add to the totals of carriers. Retracted rows count negatively."""
    sign = _change_signs(changes)
    added = pa.table(
        {
            "carrier": changes["carrier"],
            "scheduled": sign,
            **_parts(changes, sign),
            "worst_arr_delay": pc.if_else(pc.greater(sign, 0), changes["arr_delay"], None),
        }
    )
    return cast_columns(_aggregate(added, "carrier", ["worst_arr_delay"]), CARRIER_TOTALS.schema)


def airport_totals(changes: pa.Table) -> pa.Table:
    """Return the amounts that changes of flights add to the totals of airports, of departure and of destination."""
    parts, none = _parts(changes, _change_signs(changes)), pa.repeat(0, changes.num_rows)
    zero = none.cast(pa.int64())
    departures = {
        "airport": changes["origin"],
        "departures": parts["departed"],
        "arrivals": zero,
        "arr_delay_minutes": zero,
    }
    arrivals = {
        "airport": changes["dest"],
        "departures": zero,
        "arrivals": parts["arrived"],
        "arr_delay_minutes": parts["arr_delay_minutes"],
    }
    added = pa.concat_tables([pa.table(departures), pa.table(arrivals)])
    at_airports = added.filter(pc.is_valid(added["airport"]))
    return cast_columns(_aggregate(at_airports, "airport"), AIRPORT_TOTALS.schema)


def first_sightings(changes: pa.Table) -> pa.Table:
    """Return the first departure of each aircraft in the changes, without names of airlines and models."""
    is_new = pc.greater(_change_signs(changes), 0)
    is_departure = pc.and_(pc.is_valid(changes["tailnum"]), pc.is_valid(changes[DEPARTED_AT]))
    rows = changes.filter(pc.and_(is_new, is_departure)).sort_by(DEPARTED_AT)
    first = rows.append_column("at", pa.array(range(rows.num_rows), pa.int64()))
    first = first.group_by("tailnum").aggregate([("at", "min")])
    rows = rows.take(first["at_min"]).rename_columns({DEPARTED_AT: "seen_at"})
    names = {"airline", "manufacturer", "model"}
    return cast_columns(
        rows, pa.schema([field for field in SIGHTINGS.schema if field.name not in names])
    )


def add_names(sightings: pa.Table, airlines: pa.Table, planes: pa.Table) -> pa.Table:
    """Return sightings with the names of carriers and the makers of aircraft."""
    carriers = airlines.select(["carrier", "name"]).rename_columns({"name": "airline"})
    makers = planes.select(["tailnum", "manufacturer", "model"])
    return cast_columns(
        sightings.join(carriers, "carrier").join(makers, "tailnum"), SIGHTINGS.schema
    )


def _change_signs(changes: pa.Table) -> pa.ChunkedArray:
    """Return 1 for inserted rows (+I, +U) and -1 for retracted rows (-U, -D)."""
    is_insert = pc.is_in(changes["_row_kind"], pa.array(["+I", "+U"]))
    return pc.if_else(is_insert, pa.scalar(1, pa.int64()), pa.scalar(-1, pa.int64()))


def _parts(changes: pa.Table, sign: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    delay = changes["arr_delay"].cast(pa.int64())
    return {
        "departed": pc.multiply(sign, pc.is_valid(changes["dep_time"]).cast(pa.int64())),
        "arrived": pc.multiply(sign, pc.is_valid(delay).cast(pa.int64())),
        "arr_delay_minutes": pc.multiply(sign, pc.fill_null(delay, 0)),
    }


def _aggregate(added: pa.Table, key: str, greatest: Sequence[str] = ()) -> pa.Table:
    function_by_column = {
        name: "max" if name in greatest else "sum" for name in added.column_names if name != key
    }
    totals = added.group_by(key).aggregate(list(function_by_column.items()))
    return totals.rename_columns(
        {f"{name}_{act}": name for name, act in function_by_column.items()}
    )
