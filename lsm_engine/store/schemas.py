"""The schema history of a table: one immutable file per version."""

from dataclasses import replace

from lsm_engine.base.errors import CorruptFileError, ErrorKind, NotFoundError
from lsm_engine.codec.checksum import checksum_of
from lsm_engine.codec.documents import decode_schema, encode_schema
from lsm_engine.codec.json_object import READ_MAX
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.paths import SCHEMA_PREFIX, TablePaths, numbered
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.store.claims import unclaimed
from lsm_engine.store.publishing import published

_FIRST_ID = 0


class SchemaStore:
    """The schemas of one table or branch (SchemaManager)."""

    def __init__(self, file_io: FileIO, paths: TablePaths) -> None:
        self._file_io = file_io
        self._paths = paths

    def ids(self) -> list[int]:
        """Return the existing ids, oldest first."""
        numbers = (
            numbered(status.name, SCHEMA_PREFIX)
            for status in self._file_io.list(self._paths.schema_directory)
            if not status.is_directory
        )
        return sorted(number for number in numbers if number is not None)

    def latest(self) -> TableSchema | None:
        """Return the schema in force, the one with the highest id; None if this is no table."""
        first = self._paths.schema_file(_FIRST_ID)
        if self._file_io.facts.is_far:  # most tables have no other: fetch it with the listing
            self._file_io.prefetch(first)
        newest = max(self.ids(), default=None)
        if newest != _FIRST_ID:
            self._file_io.forget_prefetched([first])
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
        """Return a schema and its file, None where that is not made yet (store/claims); raises NotFoundError."""
        path = self._paths.schema_file(schema_id)
        try:
            data = self._file_io.read(path, length=READ_MAX)
        except NotFoundError:
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
