"""How much a micro-batch of a stream may read; PySpark 4.1 has no words for it yet, and reads all there is."""

from collections.abc import Mapping
from typing import Any

from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.record import record
from lsm_engine.base.units import parse_bytes
from lsm_engine.spark.source_options import MAX_BYTES, MAX_FILES, MAX_SNAPSHOTS

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # PySpark 4.1 asks for neither
    ReadAllAvailable = ReadMaxFiles = SupportsTriggerAvailableNow = object  # type: ignore[assignment, misc]

__all__ = ["ReadLimits", "SupportsTriggerAvailableNow", "is_unlimited"]
_UNBOUNDED = 2**31 - 1


def is_unlimited(limit: Any) -> bool:
    """Whether Spark asks for all there is, whatever the options: `trigger(once=True)` does."""
    return limit is None or isinstance(limit, ReadAllAvailable)


@record
class ReadLimits:
    """What a micro-batch takes at most, one bucket at least; None: as much as there is."""

    files: int | None = None
    bytes: int | None = None
    snapshots: int | None = None

    @staticmethod
    def of(options: Mapping[str, str]) -> "ReadLimits":
        """Return the limits that options name; raises InvalidOptionError for one below 1."""
        found = {}
        for name, key, parse in (
            ("files", MAX_FILES, int),
            ("bytes", MAX_BYTES, parse_bytes),
            ("snapshots", MAX_SNAPSHOTS, int),
        ):
            text = options.get(key)
            if text is None:
                continue
            try:
                found[name] = parse(text)
            except ValueError as cause:
                raise InvalidOptionError("give a number", key=key, value=text) from cause
            if found[name] < 1:
                raise InvalidOptionError("a micro-batch has to take something", key=key, value=text)
        return ReadLimits(**found)

    @property
    def of_spark(self) -> Any:
        """Spark's form of them: whether there are any is all that it has to know."""
        return (
            ReadAllAvailable() if self == ReadLimits() else ReadMaxFiles(self.files or _UNBOUNDED)
        )

    def hold(self, files: int, byte_count: int) -> bool:
        """Whether so many files and bytes are within the limits."""
        return (self.files is None or files <= self.files) and (
            self.bytes is None or byte_count <= self.bytes
        )
