"""Verify the indexes of dynamic buckets: a key's hash is listed for one bucket of its partition."""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from lsm_engine.base.errors import LsmError
from lsm_engine.codec.bucket_index import decode_bucket_index
from lsm_engine.codec.checksum import check_bytes
from lsm_engine.kernels.groups import distinct
from lsm_engine.meta.index_file import IndexFileMeta, IndexManifestEntry
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.staging import indexes_by_partition


class BucketVerification:
    """Looks at each set of indexes once, however many roots have it."""

    def __init__(self, session: TableSession) -> None:
        self._session = session
        self._sound: set[frozenset[str]] = set()

    def problems(self, entries: Iterable[IndexManifestEntry]) -> Iterator[str]:
        """Yield what is wrong with the bucket indexes of a root."""
        for partition, files in indexes_by_partition(entries).items():
            names = frozenset(file.file_name for _, file in files)
            if names in self._sound:
                continue
            try:
                hashes = np.concatenate([self._hashes(file) for _, file in files])
            except LsmError as error:
                yield str(error)
                continue
            doubled = len(hashes) - len(distinct(hashes))
            if doubled:
                where = self._session.context().partition_path(partition) or "the table"
                yield (
                    f"{doubled} keys of {where} are listed for two dynamic buckets, so that rows may "
                    "be read twice; overwrite it with its rows"
                )
            else:
                self._sound.add(names)

    def _hashes(self, file: IndexFileMeta) -> npt.NDArray[np.int32]:
        path = self._session.paths.index_file(file.file_name)
        data = self._session.file_io.read(path, length=file.file_size + 1)
        check_bytes(data, file.checksum, file_name=path)
        return decode_bucket_index(data, row_count=file.row_count, file_name=path)
