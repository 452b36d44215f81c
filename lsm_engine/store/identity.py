"""The identity of an opened table: its directory may be dropped and created again meanwhile."""

from collections.abc import Callable

from lsm_engine.base.errors import ErrorKind, NotFoundError
from lsm_engine.io.paths import SCHEMA_PREFIX
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.store.schemas import SchemaStore


class TableIdentity:
    """Knows one table, or branch, by a schema of it: files of schemas are never changed.

    What a snapshot keeps of schemas answers without a request. The file of the schema is looked at where there
    is no snapshot, or one that was made with another schema: once for each of these. So it is for each
    snapshot of another client, which keeps no checksums of schemas.
    """

    def __init__(
        self, schemas: SchemaStore, table: str, opened_schema: Callable[[], TableSchema]
    ) -> None:
        """`opened_schema` returns the schema by which the table was opened."""
        self._schemas = schemas
        self._table = table or None
        self._known = opened_schema
        self._seen: set[tuple[int, ...]] = set()

    def require(self, snapshot: Snapshot | None) -> None:
        """Raise NotFoundError if the newest snapshot, or none, is what is found of another table, or of none."""
        mark: tuple[int, ...] | None = None
        if snapshot is not None:
            schema = self._known()
            expected = snapshot.checksum_of(f"{SCHEMA_PREFIX}{schema.id}")
            if expected is None or schema.checksum is None:
                newer = snapshot.checksum_of(f"{SCHEMA_PREFIX}{snapshot.schema_id}")
                if newer is None:
                    mark = (snapshot.id, snapshot.time_millis, snapshot.schema_id)
                else:
                    mark = (snapshot.schema_id, newer)
                if mark in self._seen:
                    return
            elif expected == schema.checksum:
                return
        if self.is_dropped():
            raise self.dropped()
        if mark is not None:
            self._seen.add(mark)

    def is_dropped(self) -> bool:
        """Whether the directory holds another table by now, or none."""
        schema = self._known()
        try:
            stored = self._schemas.load(schema.id)
        except NotFoundError:
            return True
        if stored.time_millis != schema.time_millis:
            return True
        checksums = (stored.checksum, schema.checksum)
        # The same schema in other bytes is what another client makes of a file that it copies or restores.
        return None not in checksums and checksums[0] != checksums[1] and stored != schema

    def dropped(self) -> NotFoundError:
        """Return the error for a table that was dropped."""
        return NotFoundError(
            "the table, or its branch, was dropped or renamed since it was opened, so that nothing was read or "
            "committed; if it has another name, or was made again, open it anew",
            kind=ErrorKind.NO_SUCH_TABLE,
            table=self._table,
        )
