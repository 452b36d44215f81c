"""Verify the statistics that ANALYZE of another client left: they are there, can be read, and fit the table.

They carry no checksum, so a digit that became another one is not noticed.
"""

from collections.abc import Iterator

from lsm_engine.base.errors import LsmError
from lsm_engine.base.units import counted
from lsm_engine.codec.json_object import READ_MAX
from lsm_engine.codec.table_statistics import TableStatistics, decode_statistics
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.integrity.findings import Finding, finding_of


class StatisticsVerification:
    """The statistics of all roots of one branch; each file is read once."""

    def __init__(self, session: TableSession) -> None:
        self._session = session
        self._known: dict[str, TableStatistics | Finding] = {}

    def problems(self, snapshot: Snapshot) -> Iterator[Finding]:
        """Yield what is wrong with the statistics that a snapshot names."""
        name = snapshot.statistics
        if name is None:
            return
        if name not in self._known:
            self._known[name] = self._read(name)
        statistics = self._known[name]
        if isinstance(statistics, Finding):
            yield statistics
            return
        path = self._session.paths.statistics_file(name)
        if statistics.snapshot_id > snapshot.id:
            yield Finding(
                text=f"{path} is of snapshot {statistics.snapshot_id}, which is newer", path=path
            )
        for text in self._misfits(statistics):
            yield Finding(text=f"{path} {text}", path=path)

    def _read(self, name: str) -> TableStatistics | Finding:
        path = self._session.paths.statistics_file(name)
        try:
            return decode_statistics(
                self._session.file_io.read(path, length=READ_MAX), file_name=path
            )
        except LsmError as error:
            return Finding(text=str(error), path=path)

    def _misfits(self, statistics: TableStatistics) -> Iterator[str]:
        try:
            schema = self._session.schemas.load(statistics.schema_id)
        except LsmError as error:
            yield f"is of schema {statistics.schema_id}: {finding_of(error)}"
            return
        unknown = sorted(set(statistics.null_counts) - set(schema.names))
        if unknown:
            yield f"has a column {unknown[0]!r}, which schema {schema.id} does not have"
        most = statistics.merged_record_count
        for name, count in sorted(statistics.null_counts.items()):
            if count is not None and most is not None and count > most:
                yield f"counts {counted(count, 'null')} of column {name!r} in {counted(most, 'row')}"
