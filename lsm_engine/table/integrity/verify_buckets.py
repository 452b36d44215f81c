"""Verify the indexes of dynamic buckets: a key's hash is listed for one bucket of its partition."""

from collections.abc import Iterable, Iterator

import numpy as np

from lsm_engine.base.errors import LsmError
from lsm_engine.kernels.groups import distinct
from lsm_engine.meta.index_file import IndexManifestEntry
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.staging import indexes_by_partition
from lsm_engine.table.integrity.findings import Finding, finding_of
from lsm_engine.table.stage.dynamic_buckets import listed_hashes


class BucketVerification:
    """Looks at each set of indexes once, however many roots have it."""

    def __init__(self, session: TableSession) -> None:
        self._session = session
        self._sound: set[frozenset[str]] = set()

    def problems(self, entries: Iterable[IndexManifestEntry]) -> Iterator[Finding]:
        """Yield what is wrong with the bucket indexes of a root."""
        context = self._session.context()
        for partition, files in indexes_by_partition(entries).items():
            names = frozenset(file.file_name for _, file in files)
            if names in self._sound:
                continue
            try:
                hashes = np.concatenate([listed_hashes(context, file) for _, file in files])
            except LsmError as error:
                yield finding_of(error)
                continue
            doubled = len(hashes) - len(distinct(hashes))
            if doubled:
                where = context.partition_path(partition) or "the table"
                yield Finding(
                    text=f"{doubled} keys of {where} are listed for two dynamic buckets, so that rows may "
                    "be read twice; overwrite it with its rows"
                )
            else:
                self._sound.add(names)
