"""Which data files a deep verification has found sound, so that the next one may pass over them.

Kept beside the table's other documents and used by nothing else: without it, files are read again.
"""

from collections.abc import Mapping

from lsm_engine.base.errors import CorruptFileError, NotFoundError
from lsm_engine.codec.json_object import READ_MAX, object_text, parse_object
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.paths import TablePaths

_FILES = "files"
FILE_COUNT_MAX = 200_000
"""So many fit into a document that is read back."""


class VerifiedFileStore:
    """The record of one table, all branches together."""

    def __init__(self, file_io: FileIO, paths: TablePaths) -> None:
        self._file_io = file_io
        self._path = paths.verified_file

    def load(self) -> dict[str, str]:
        """Return the fingerprint of each file by its path; raises CorruptFileError."""
        try:
            data = self._file_io.read(self._path, length=READ_MAX)
        except NotFoundError:
            return {}
        found = parse_object(data, file_name=self._path).text_map(_FILES)
        if found is None:
            raise CorruptFileError(
                "this is no record of verified files; delete it, or repair records", file=self._path
            )
        return found

    def replace(self, fingerprints: Mapping[str, str]) -> None:
        """Write the record anew; of very many files the last `FILE_COUNT_MAX`."""
        kept = dict(list(fingerprints.items())[-FILE_COUNT_MAX:])
        self._file_io.replace(self._path, object_text({_FILES: kept}))
