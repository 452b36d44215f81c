"""The data version of a table: a snapshot id and a hash of the commit.

The id alone is not enough, because the table assigns it again after a rollback.
"""

import re
import zlib

from lsm_engine import Snapshot, record

COMMIT_HASH_LENGTH = 8
"""Characters of a commit hash: a CRC-32 in hexadecimal."""
_TEXT = re.compile(rf"([0-9]{{1,18}})(?:-([0-9a-f]{{{COMMIT_HASH_LENGTH}}}))?")


@record
class TableVersion:
    """One commit of a table. `commit_hash` distinguishes commits with the same id; "" if it is not known."""

    snapshot_id: int
    commit_hash: str = ""

    @property
    def text(self) -> str:
        """The data version in Dagster, such as `18-9f3a11c0`."""
        return (
            f"{self.snapshot_id}-{self.commit_hash}" if self.commit_hash else str(self.snapshot_id)
        )

    def is_same(self, version: "TableVersion") -> bool:
        """Whether both are the same commit. Without a hash on both sides the ids decide."""
        unmarked = not (self.commit_hash and version.commit_hash)
        return self.snapshot_id == version.snapshot_id and (
            unmarked or self.commit_hash == version.commit_hash
        )


def version_from_snapshot(snapshot: Snapshot) -> TableVersion:
    """Return the version of a snapshot. A tag, a branch and a fast-forward keep it."""
    return version_from_manifest(snapshot.id, snapshot.delta_manifest_list)


def version_from_manifest(snapshot_id: int, delta_manifest_list: str) -> TableVersion:
    """Return the version of the commit that wrote a delta manifest list. The name of that file is unique."""
    return TableVersion(
        snapshot_id=snapshot_id,
        commit_hash=f"{zlib.crc32(delta_manifest_list.encode()):0{COMMIT_HASH_LENGTH}x}",
    )


def parse_version(text: str) -> TableVersion | None:
    """Return a data version of Dagster as a table version; None for assets that are no tables."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    return TableVersion(snapshot_id=int(match[1]), commit_hash=match[2] or "")
