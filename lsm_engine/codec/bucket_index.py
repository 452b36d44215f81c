"""Index files of dynamic buckets: the hashes of a bucket's keys, 4 bytes each, big-endian (format section 12)."""

import numpy as np
from numpy.typing import NDArray

from lsm_engine.base.errors import CorruptFileError

_STORED = np.dtype(">i4")


def encode_bucket_index(hashes: NDArray[np.int32]) -> bytes:
    """Return the file that lists hashes, in the order given."""
    return hashes.astype(_STORED).tobytes()


def decode_bucket_index(data: bytes, *, row_count: int, file_name: str) -> NDArray[np.int32]:
    """Return the hashes that a file lists; CorruptFileError, naming it, unless there are `row_count`."""
    if len(data) != _STORED.itemsize * row_count:
        raise CorruptFileError(
            "a bucket index has not as many hashes as its index manifest records; restore it, or "
            "overwrite the partition",
            file=file_name,
            bytes=len(data),
            expected_rows=row_count,
        )
    return np.frombuffer(data, _STORED).astype(np.int32)
