"""The file of commit identifiers, and what snapshots carry of them: the last commit of each user."""

from collections.abc import Callable, Iterator
from itertools import count

from lsm_engine.base.errors import CommitUnknownError, ErrorKind, NotFoundError, StorageError
from lsm_engine.format.commit_message import LastCommit, RecordedIdentifiers
from lsm_engine.format.documents import (
    decode_recorded,
    encode_recorded,
)
from lsm_engine.format.json_object import READ_MAX
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.metadata.publishing import unclaimed
from lsm_engine.metadata.snapshots import SnapshotStore
from lsm_engine.planning.commit_identifiers import (
    ChainIdentifiers,
    counted_chain,
    ends_chain,
    has_property,
    identifiers_of,
    last_commit,
)
from lsm_engine.planning.snapshot_chain import follows, named_base
from lsm_engine.storage.file_io import FileIO
from lsm_engine.storage.paths import TablePaths

_TRIES = 100  # changes of the file that others win before this one is given up
_READ_MAX = 64  # snapshots that are asked for at once


class CommitIdentifierStore:
    """The commit identifiers of one table or branch."""

    def __init__(self, file_io: FileIO, paths: TablePaths, snapshots: SnapshotStore) -> None:
        self._file_io = file_io
        self._paths = paths
        self._snapshots = snapshots

    def up_to(self, base: Snapshot | None) -> ChainIdentifiers:
        """Return the last commits up to a snapshot that counts; None: the table has none yet."""
        chain = list(self._line_down(base))
        # Without a base only EARLIEST distinguishes a snapshot of the chain from an orphan
        # snapshot.
        if any(named_base(snapshot) is None for snapshot in chain[:-1]):
            chain = list(counted_chain(chain, self._snapshots.earliest_hint()))
        recorded = None
        if chain and not has_property(chain[-1]) and not ends_chain(chain[-1]):
            recorded = self.read()
        file_name = self._paths.snapshot_file(chain[-1].id) if chain else ""
        return identifiers_of(chain, recorded, file_name)

    def last_commit(
        self, key: str, chain: ChainIdentifiers, base: Snapshot | None
    ) -> LastCommit | None:
        """Return the last commit of a user up to a snapshot; LookupError where that is unknown.

        The file is read after the snapshot: a user that a snapshot leaves out was written there before.
        """
        recorded = self.read() if chain.asks_file else None
        return last_commit(key, chain, recorded, 0 if base is None else base.id)

    def _line_down(self, base: Snapshot | None) -> Iterator[Snapshot]:
        """Yield a snapshot and those below it, until one has the property or there is none."""
        newer = base
        if base is not None:
            yield base
        for size in count(1):
            if newer is None or has_property(newer) or ends_chain(newer):
                return
            # Mostly one snapshot is enough; after another client's commits the batches grow.
            batch_size = min(1 << size >> 1, _READ_MAX)
            ids = range(newer.id - 1, max(newer.id - 1 - batch_size, 0), -1)
            for older in self._snapshots.find_many(ids):
                if older is None or not follows(newer, older):
                    return
                yield older
                newer = older
                if has_property(newer) or ends_chain(newer):
                    return

    def read(self) -> RecordedIdentifiers | None:
        """Return what the file holds, None if there is none; raises CorruptFileError."""
        return self._read()[0]

    def _read(self) -> tuple[RecordedIdentifiers | None, bytes]:
        path = self._paths.commit_identifier_file
        try:
            data = self._file_io.read(path, length=READ_MAX)
        except NotFoundError:
            return None, b""
        document = unclaimed(self._file_io, self._paths, path, data)
        if document is None:
            return None, b""
        return decode_recorded(document, file_name=path), document

    def change(
        self, content_after: Callable[[RecordedIdentifiers | None], RecordedIdentifiers | None]
    ) -> None:
        """Change what the file holds, also if others change it meanwhile.

        `content_after` is asked again after each change of others, with what there is then; where it returns that, or None,
        nothing is written. Raises StorageError.
        """
        path = self._paths.commit_identifier_file
        for _ in range(_TRIES):
            recorded, data = self._read()
            content = content_after(recorded)
            if content is None or content == recorded:
                return
            text = encode_recorded(content)
            try:
                if recorded is None:
                    is_written = self._file_io.publish(path, text)
                else:
                    is_written = self._file_io.change_if_unchanged(path, text, expected=data)
            except CommitUnknownError:
                continue  # the answer was lost: what is there by now decides
            if is_written:
                return
        raise StorageError(
            "others keep changing the file of commit identifiers; try again",
            kind=ErrorKind.STORAGE,
            path=path,
        )
