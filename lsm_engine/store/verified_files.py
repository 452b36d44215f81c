"""The record of data files that a deep verification found sound, so that the next one skips them.

Only verification uses it: without the record, files are read again.
"""

from collections.abc import Mapping

from lsm_engine.base.errors import CorruptFileError, NotFoundError
from lsm_engine.codec.json_object import READ_MAX, object_text, parse_object
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.paths import TablePaths

_FILES = "files"
FILE_COUNT_MAX = 200_000
"""The maximum of files in a document that is still read."""


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
        fingerprints = parse_object(data, file_name=self._path).text_map(_FILES)
        if fingerprints is None:
            raise CorruptFileError(
                "this is no record of verified files; delete it, or repair records", file=self._path
            )
        return fingerprints

    def replace(self, fingerprints: Mapping[str, str]) -> None:
        """Write the record anew; of very many files the last `FILE_COUNT_MAX`."""
        newest = dict(list(fingerprints.items())[-FILE_COUNT_MAX:])
        self._file_io.replace(self._path, object_text({_FILES: newest}))
