"""How many rows a commit inserted, updated, deleted and skipped: carried in the snapshot's properties.

    lsm.rows.inserted   keys that were not there before
    lsm.rows.updated    keys that were there, and got a new version
    lsm.rows.deleted    keys that were there, and went
    lsm.rows.skipped    rows that change nothing, because their key was there, or was not
    lsm.rows.at-most    "true": updated and deleted are upper bounds. How many rows the table's
                        `sequence.field` leaves as they were is unknown until they are merged

All values are whole numbers as text. Other clients ignore them. Each key counts once a commit.
"""

from collections.abc import Mapping

from lsm_engine.base.record import record

INSERTED = "lsm.rows.inserted"
UPDATED = "lsm.rows.updated"
DELETED = "lsm.rows.deleted"
SKIPPED = "lsm.rows.skipped"
AT_MOST = "lsm.rows.at-most"


@record
class RowCounts:
    """What a commit did to rows. `skipped` rows are those that an insert or update left out, or first-row.

    `at_most`: fewer may be updated and deleted: a `sequence.field` keeps rows that are greater by it.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    skipped: int = 0
    at_most: bool = False

    def __add__(self, other: "RowCounts") -> "RowCounts":
        return RowCounts(
            inserted=self.inserted + other.inserted,
            updated=self.updated + other.updated,
            deleted=self.deleted + other.deleted,
            skipped=self.skipped + other.skipped,
            at_most=self.at_most or other.at_most,
        )

    @property
    def properties(self) -> dict[str, str]:
        """The snapshot properties that carry the counts; skipped rows only where there are some."""
        counts = {
            INSERTED: str(self.inserted),
            UPDATED: str(self.updated),
            DELETED: str(self.deleted),
        }
        skipped = {SKIPPED: str(self.skipped)} if self.skipped else {}
        return {**counts, **skipped, **({AT_MOST: "true"} if self.at_most else {})}


def row_counts_of(properties: Mapping[str, str] | None) -> RowCounts | None:
    """Return the counts that a snapshot carries; None if it carries none that can be read."""
    texts = properties or {}
    if INSERTED not in texts:
        return None
    try:
        return RowCounts(
            inserted=int(texts[INSERTED]),
            updated=int(texts.get(UPDATED, "0")),
            deleted=int(texts.get(DELETED, "0")),
            skipped=int(texts.get(SKIPPED, "0")),
            at_most=texts.get(AT_MOST) == "true",
        )
    except ValueError:
        return None
