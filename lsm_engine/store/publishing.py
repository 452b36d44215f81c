"""Create a file atomically; if the storage does not report the outcome, read it back."""

from lsm_engine.base.errors import CommitUnknownError, LsmError
from lsm_engine.io.file_io import FileIO


def published(file_io: FileIO, path: str, data: bytes) -> bool:
    """Create `path` with all of `data`; False if something else has the name.

    Raises CommitUnknownError only if the storage cannot even report whether the file exists.
    """
    try:
        return file_io.publish(path, data)
    except CommitUnknownError:
        try:
            if file_io.exists(path):
                return file_io.read(path) == data
        except LsmError:
            pass  # who cannot be asked leaves it unknown
        raise
