"""The data version of a table: which commit, not only which id, as ids are given again after a rollback."""

import re
import zlib

from lsm_engine import Snapshot, record

MARK_LENGTH = 8
"""Characters of a mark: a CRC-32 in hexadecimal."""
_TEXT = re.compile(rf"([0-9]{{1,18}})(?:-([0-9a-f]{{{MARK_LENGTH}}}))?")


@record
class TableVersion:
    """One commit of a table. `mark` tells commits of one id apart; "" in records that have none."""

    snapshot_id: int
    mark: str = ""

    @property
    def text(self) -> str:
        """As Dagster keeps it, such as `18-9f3a11c0`."""
        return f"{self.snapshot_id}-{self.mark}" if self.mark else str(self.snapshot_id)

    def is_same(self, other: "TableVersion") -> bool:
        """Whether both are one commit, as far as they have marks."""
        unmarked = not (self.mark and other.mark)
        return self.snapshot_id == other.snapshot_id and (unmarked or self.mark == other.mark)


def version_of(snapshot: Snapshot) -> TableVersion:
    """Return the version of a snapshot; the same on a tag, a branch and after a fast-forward."""
    return marked(snapshot.id, snapshot.delta_manifest_list)


def marked(snapshot_id: int, delta_manifest_list: str) -> TableVersion:
    """Return the version of the commit that wrote a delta manifest list, which no other commit names."""
    return TableVersion(
        snapshot_id=snapshot_id, mark=f"{zlib.crc32(delta_manifest_list.encode()):0{MARK_LENGTH}x}"
    )


def parse_version(text: str) -> TableVersion | None:
    """Read a data version; None for those of assets that are no tables."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    return TableVersion(snapshot_id=int(found[1]), mark=found[2] or "")
