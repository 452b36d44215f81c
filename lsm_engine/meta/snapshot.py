"""Snapshot: one committed state, by number. A changelog file has the same shape."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NoReturn

from lsm_engine.base.arguments import checks_arguments
from lsm_engine.base.modes import CommitKind
from lsm_engine.base.record import record
from lsm_engine.base.units import counted

SNAPSHOT_VERSION = 3

_COUNTS = "lsm.row_counts_of(snapshot.properties)"


@record
class Snapshot:
    """All members of a snapshot file (format section 3). Counts are of rows, not merged."""

    id: int
    schema_id: int
    base_manifest_list: str
    delta_manifest_list: str
    commit_user: str
    commit_identifier: int
    commit_kind: CommitKind
    time_millis: int
    total_record_count: int | None
    delta_record_count: int | None
    version: int | None = SNAPSHOT_VERSION
    changelog_manifest_list: str | None = None
    base_manifest_list_size: int | None = None
    delta_manifest_list_size: int | None = None
    changelog_manifest_list_size: int | None = None
    index_manifest: str | None = None
    log_offsets: Mapping[str, int] | None = None
    changelog_record_count: int | None = None
    watermark: int | None = None
    statistics: str | None = None
    properties: Mapping[str, str] | None = None
    next_row_id: int | None = None
    uuid: str | None = None
    operation: str | None = None
    writer_version: str | None = None
    checksums: Mapping[str, int] | None = None  # of the files it names, by name, as far as known
    manifest_lists: str | None = (
        None  # a copy of the base and the delta list (plan/named_manifests)
    )

    def __repr__(self) -> str:
        """What a person looks for; the attributes hold the rest."""
        try:
            created = datetime.fromtimestamp(self.time_millis / 1000, UTC).isoformat(" ", "seconds")
        except (ValueError, OverflowError, OSError):  # a clock that was wrong, or damage
            created = f"{self.time_millis} ms"
        return (
            f"<{type(self).__name__} {self.id}: {self.commit_kind.value} at {created}, "
            f"{counted(self.delta_record_count or 0, 'row')} written, {self.total_record_count} in its files>"
        )

    def __getitem__(self, name: object) -> NoReturn:
        raise TypeError(f"a snapshot has attributes, such as id; what a merge did is {_COUNTS}")

    @property
    def schema_name(self) -> str:
        """The name of the file of its schema."""
        return f"schema-{self.schema_id}"

    @checks_arguments
    def checksum_of(self, name: str | None) -> int | None:
        """Return the checksum that it keeps of a file it names; None if there is none."""
        return None if name is None or self.checksums is None else self.checksums.get(name)
