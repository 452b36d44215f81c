"""Ways to keep the partitions of an asset, for random histories."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import dagster as dg
import pyarrow as pa


@dataclass(frozen=True)
class Layout:
    """A way to keep an asset's partitions: the definition, the partition columns, the row of a key.

    `within`: columns of the rows that tell partitions apart which share a directory, the first of the
    table's key. A commit then concerns all partitions between the least and the greatest in a file.
    """

    definition: dg.PartitionsDefinition
    columns: Mapping[str, pa.DataType]
    values: Mapping[str, Mapping[str, object]]
    partition_columns: Mapping[str, str] = field(default_factory=dict)
    dynamic: str | None = None
    within: Mapping[str, pa.DataType] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        return list(self.values)

    def directory(self, key: str) -> dict[str, object]:
        """Return the values of the partition columns."""
        return {name: self.values[key][name] for name in self.columns}

    def share(self, key: str) -> set[str]:
        """Return the keys that are kept in the same directory."""
        return {other for other in self.values if self.directory(other) == self.directory(key)}

    def between(self, keys: Collection[str]) -> list[set[str]]:
        """Return those that a file with rows of some keys may have rows of, by directory."""
        if not self.within:
            return [self.share(key) for key in keys]
        places = [self.keys.index(key) for key in keys]
        return [set(self.keys[min(places) : max(places) + 1])] if places else []


def _multi() -> Layout:
    definition = dg.MultiPartitionsDefinition(
        {
            "region": dg.StaticPartitionsDefinition(["eu", "us"]),
            "dt": dg.StaticPartitionsDefinition(["1", "2"]),
        }
    )
    keys = [str(key) for key in definition.get_partition_keys()]
    at = {key: dict(definition.get_partition_key_from_str(key).keys_by_dimension) for key in keys}
    values = {key: {name: at[key][name] for name in ("region", "dt")} for key in keys}
    return Layout(definition, {"region": pa.string(), "dt": pa.string()}, values)


DAYS = ["2024-01-30", "2024-01-31", "2024-02-01", "2024-02-02"]
WEEKS = ["2024-01-07", "2024-01-14", "2024-01-21"]
LAYOUTS = {
    "static": Layout(
        dg.StaticPartitionsDefinition(["a", "b/c", "d"]),
        {"place": pa.string()},
        {key: {"place": key} for key in ("a", "b/c", "d")},
    ),
    "time": Layout(
        dg.DailyPartitionsDefinition(start_date=DAYS[0], end_date="2024-02-03"),
        {"month": pa.int32()},
        {day: {"month": int(day[5:7])} for day in DAYS},
        {"month": "{key:%m}"},
    ),
    "time_guessed": Layout(
        dg.DailyPartitionsDefinition(start_date=DAYS[0], end_date="2024-02-03"),
        {"dt": pa.date32()},
        {day: {"dt": day} for day in DAYS},
    ),
    "dynamic": Layout(
        dg.DynamicPartitionsDefinition(name="places"),
        {"place": pa.string()},
        {key: {"place": key} for key in ("x", "y")},
        dynamic="places",
    ),
    "multi": _multi(),
    # Days at the ends of weeks, and within one.
    "weeks_of_days": Layout(
        dg.WeeklyPartitionsDefinition(start_date=WEEKS[0], end_date="2024-01-28"),
        {"day": pa.date32()},
        {
            week: {"day": day}
            for week, day in zip(WEEKS, ("2024-01-13", "2024-01-14", "2024-01-23"), strict=True)
        },
        {"day": "{key}"},
    ),
    # Months begin an hour earlier in UTC.
    "months_in_rows": Layout(
        dg.MonthlyPartitionsDefinition(
            start_date="2024-01-01", end_date="2024-05-01", timezone="Europe/Berlin"
        ),
        {},
        {
            "2024-01-01": {"at": "2024-01-31T22:59:59.999999Z"},
            "2024-02-01": {"at": "2024-01-31T23:00:00Z"},
            "2024-03-01": {"at": "2024-03-15T12:00:00Z"},
            "2024-04-01": {"at": "2024-04-30T21:59:59Z"},
        },
        {"at": "{key}"},
        within={"at": pa.timestamp("us", "UTC")},
    ),
}
