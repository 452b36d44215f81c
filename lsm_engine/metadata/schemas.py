"""The schema history of a table: one immutable file per version."""

from collections.abc import Callable
from dataclasses import replace

from lsm_engine.base.errors import CommitUnknownError, CorruptFileError, ErrorKind, NotFoundError
from lsm_engine.format.checksum import checksum_of
from lsm_engine.format.documents import decode_schema, encode_schema
from lsm_engine.format.json_object import READ_MAX
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.metadata.publishing import deleted, listed_numbers, published, unclaimed
from lsm_engine.storage.bulk import forget_prefetched, prefetch
from lsm_engine.storage.file_io import FileIO
from lsm_engine.storage.paths import SCHEMA_PREFIX, TablePaths
from lsm_engine.types.table_schema import TableSchema

_FIRST_ID = 0


class SchemaStore:
    """The schemas of one table or branch (SchemaManager)."""

    def __init__(self, file_io: FileIO, paths: TablePaths) -> None:
        self._file_io = file_io
        self._paths = paths

    def ids(self) -> list[int]:
        """Return the existing ids, oldest first."""
        return listed_numbers(self._file_io.list(self._paths.schema_directory), SCHEMA_PREFIX)

    def latest(self) -> TableSchema | None:
        """Return the schema in force, the one with the highest id; None if this is no table."""
        first = self._paths.schema_file(_FIRST_ID)
        if self._file_io.facts.is_remote:  # most tables have no other: fetch it with the listing
            prefetch(self._file_io, first)
        newest = max(self.ids(), default=None)
        if newest != _FIRST_ID:
            forget_prefetched(self._file_io, [first])
        if newest is None:
            return None
        if not self._file_io.facts.lists_are_consistent:
            while self._file_io.exists(self._paths.schema_file(newest + 1)):
                newest += 1  # a listing may be older than a change that just landed
        schema_file = self._read(newest)
        while schema_file is None and newest > _FIRST_ID:  # a branch is being created
            newest -= 1
            schema_file = self._read(newest)
        return None if schema_file is None else schema_file[0]

    def load(self, schema_id: int) -> TableSchema:
        """Return one version; raises NotFoundError if there is none of this id."""
        return self._required(schema_id)[0]

    def copied(self, schema_id: int) -> bytes:
        """Return the file of one version, to be that of a branch: snapshots keep the checksum of its bytes."""
        return self._required(schema_id)[1]

    def _required(self, schema_id: int) -> tuple[TableSchema, bytes]:
        schema_file = self._read(schema_id)
        if schema_file is None:
            raise self._missing(schema_id)
        return schema_file

    def _missing(self, schema_id: int) -> NotFoundError:
        return NotFoundError(
            f"no schema {schema_id}; is this the directory of a table?",
            kind=ErrorKind.NO_SUCH_FILE,
            path=self._paths.schema_file(schema_id),
            schema_id=schema_id,
        )

    def _read(self, schema_id: int) -> tuple[TableSchema, bytes] | None:
        """Return a schema and its file, None where that is not made yet (metadata/publishing); raises NotFoundError."""
        path = self._paths.schema_file(schema_id)
        try:
            data = self._file_io.read(path, length=READ_MAX)
        except NotFoundError:
            # The error names the schema, and asks whether the directory is a table.
            raise self._missing(schema_id) from None
        document = unclaimed(self._file_io, self._paths, path, data)
        if document is None:
            return None
        data = document
        schema = decode_schema(data, file_name=path)
        if schema.id != schema_id:
            raise CorruptFileError(
                "a schema file holds another schema; restore it", file=path, id=schema.id
            )
        return schema, data

    def all(self) -> list[TableSchema]:
        """Return every version, oldest first."""
        schema_files = [self._read(schema_id) for schema_id in self.ids()]
        return [schema_file[0] for schema_file in schema_files if schema_file is not None]

    def publish(self, schema: TableSchema, copied: bytes | None = None) -> TableSchema | None:
        """Make a version the one in force; return it with its file's checksum, None if its id is taken.

        `copied`: its file, where a branch has one. Raises CommitUnknownError only if the storage cannot
        even report whether the file exists.
        """
        path = self._paths.schema_file(schema.id)
        data = encode_schema(schema) if copied is None else copied
        if not published(self._file_io, path, data):
            return None
        return replace(schema, read_from=(schema.id, checksum_of(data)))

    def take_back(self, schema: TableSchema) -> bool:
        """Delete the file of a version that was just published; False, and no change, if it is another's or was deleted."""
        path = self._paths.schema_file(schema.id)
        return deleted(self._file_io, path, expected=encode_schema(schema))


# -- The identity of an opened table: its directory may be dropped and created again meanwhile -----


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
            # The snapshot has no checksum of this schema: its file is asked, once for each mark.
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
            # Only a drop deletes schema files, or a rename of the table moves them.
            return True
        # A table that was made anew has the id again, at another time.
        if stored.time_millis != schema.time_millis:
            return True
        checksums = (stored.checksum, schema.checksum)
        # The same schema in other bytes is what another client makes of a file that it copies or restores.
        return None not in checksums and checksums[0] != checksums[1] and stored != schema

    def require_there(self) -> None:
        """Raise NotFoundError if the directory holds another table by now, or none."""
        if self.is_dropped():
            raise self.dropped()

    def taken_along(self, file_text: str) -> CommitUnknownError:
        """Return the error for what an operation had made in a directory that was renamed or dropped before its end."""
        return CommitUnknownError(
            f"the table, or its branch, was renamed or dropped meanwhile, and {file_text} with it; open it by its new "
            "name, and look before trying again",
            table=self._table,
        )

    def dropped(self) -> NotFoundError:
        """Return the error for a table that was dropped."""
        return NotFoundError(
            "the table, or its branch, was dropped or renamed since it was opened, so that nothing was read or "
            "committed; if it has another name, or was made again, open it anew",
            kind=ErrorKind.NO_SUCH_TABLE,
            table=self._table,
        )
