"""Consumers: how far named readers of changes have got. Expiry keeps what they still need."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count

from lsm_engine.base.errors import CommitUnknownError, ErrorKind, NotFoundError, StorageError
from lsm_engine.codec.documents import (
    decode_consumer,
    decode_recorded,
    encode_consumer,
    encode_recorded,
)
from lsm_engine.codec.json_object import READ_MAX
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.paths import CONSUMER_PREFIX, TablePaths
from lsm_engine.meta.commit_message import LastCommit, RecordedIdentifiers
from lsm_engine.meta.consumer import Consumer
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.live_snapshots import follows, named_base
from lsm_engine.plan.names import checked_name
from lsm_engine.plan.ownership import (
    IdentifiersOfLine,
    counted_line,
    ends_line,
    has_property,
    identifiers_of,
    last_commit,
)
from lsm_engine.store.claims import unclaimed
from lsm_engine.store.listing import stable_listing
from lsm_engine.store.publishing import published, replaced
from lsm_engine.store.snapshots import SnapshotStore


class ConsumerStore:
    """The positions of the named readers of one table or branch (ConsumerManager)."""

    def __init__(self, file_io: FileIO, paths: TablePaths) -> None:
        self._file_io = file_io
        self._paths = paths

    def list(self) -> list[Consumer]:
        """Return every consumer by name. One that cannot be read is an error, not a gap."""
        found = [self.find(name) for name in self.names()]
        return [each for each in found if each is not None]

    def names(self) -> Sequence[str]:
        """Return the names of consumers, in order; nothing of them is read."""
        return sorted(
            status.name.removeprefix(CONSUMER_PREFIX)
            for status in stable_listing(self._file_io, self._paths.consumer_directory)
            if status.name.startswith(CONSUMER_PREFIX) and not status.is_directory
        )

    def find(self, name: str) -> Consumer | None:
        """Return a consumer, or None if there is none of this name; raises CorruptFileError."""
        path = self._paths.consumer_file(name)
        try:
            data = unclaimed(
                self._file_io, self._paths, path, self._file_io.read(path, length=READ_MAX)
            )
            modified = self._file_io.status(path).modified_millis
        except NotFoundError:
            return None
        if data is None:
            return None
        return Consumer(
            name=name,
            next_snapshot_id=decode_consumer(data, name=name, file_name=path),
            modified_millis=modified,
        )

    def reset(self, name: str, next_snapshot_id: int) -> None:
        """Make a consumer, or move it, forwards or back: the next snapshot that it reads."""
        path = self._paths.consumer_file(checked_name("consumer", name, numeric=True))
        self._file_io.replace(path, encode_consumer(next_snapshot_id, name=name))

    def advance(self, name: str, next_snapshot_id: int) -> None:
        """Move a consumer forwards; a position it has passed already changes nothing.

        Call it once what lies before `next_snapshot_id` has been dealt with for good.
        """
        path = self._paths.consumer_file(checked_name("consumer", name, numeric=True))
        moved = encode_consumer(next_snapshot_id, name=name)
        for _ in range(_TRIES):
            data = self._file(path)
            if data is None:
                is_moved = published(self._file_io, path, moved)
            elif decode_consumer(data, name=name, file_name=path) >= next_snapshot_id:
                return
            else:
                # A reset by somebody else, back or forwards, is not undone.
                is_moved = replaced(self._file_io, path, moved, expected=data)
            if is_moved:
                return
        raise StorageError("others keep moving the consumer; try again", path=path)

    def _file(self, path: str) -> bytes | None:
        try:
            data = self._file_io.read(path, length=READ_MAX)
        except NotFoundError:
            return None
        return unclaimed(self._file_io, self._paths, path, data)

    def delete(self, name: str) -> bool:
        """Forget a consumer; False if there was none. Expiry no longer waits for it."""
        return self._file_io.delete(self._paths.consumer_file(name))


# --- commit identifiers -----------------------------------------------------------------------

_TRIES = 100  # changes of the file that others win before this one is given up
_READ_MAX = 64  # snapshots that are asked for at once


class CommitIdentifierStore:
    """The commit identifiers of one table or branch."""

    def __init__(self, file_io: FileIO, paths: TablePaths, snapshots: SnapshotStore) -> None:
        self._file_io = file_io
        self._paths = paths
        self._snapshots = snapshots

    def up_to(self, base: Snapshot | None) -> IdentifiersOfLine:
        """Return the last commits up to a snapshot that counts; None: the table has none yet."""
        line = list(self._line_down(base))
        if any(named_base(one) is None for one in line[:-1]):
            line = list(counted_line(line, self._snapshots.earliest_hint()))
        recorded = None
        if line and not has_property(line[-1]) and not ends_line(line[-1]):
            recorded = self.read()
        file_name = self._paths.snapshot_file(line[-1].id) if line else ""
        return identifiers_of(line, recorded, file_name)

    def last_commit(
        self, key: str, line: IdentifiersOfLine, base: Snapshot | None
    ) -> LastCommit | None:
        """Return the last commit of a user up to a snapshot; LookupError where that is unknown.

        The file is read after the snapshot: who left a user out of a snapshot had written it there before.
        """
        recorded = self.read() if line.asks_file else None
        return last_commit(key, line, recorded, 0 if base is None else base.id)

    def _line_down(self, base: Snapshot | None) -> Iterator[Snapshot]:
        """Yield a snapshot and those below it, until one has the property or there is none."""
        newer = base
        if base is not None:
            yield base
        for size in count(1):
            if newer is None or has_property(newer) or ends_line(newer):
                return
            asked = min(1 << size >> 1, _READ_MAX)
            ids = range(newer.id - 1, max(newer.id - 1 - asked, 0), -1)
            for older in self._snapshots.find_many(ids):
                if older is None or not follows(newer, older):
                    return
                yield older
                newer = older
                if has_property(newer) or ends_line(newer):
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
        self, changed: Callable[[RecordedIdentifiers | None], RecordedIdentifiers | None]
    ) -> None:
        """Change what the file holds, whoever else does so meanwhile.

        `changed` is asked again after each change of others, with what there is then; where it returns that, or None,
        nothing is written. Raises StorageError.
        """
        path = self._paths.commit_identifier_file
        for _ in range(_TRIES):
            recorded, data = self._read()
            content = changed(recorded)
            if content is None or content == recorded:
                return
            text = encode_recorded(content)
            try:
                if recorded is None:
                    is_written = self._file_io.publish(path, text)
                else:
                    is_written = self._file_io.replace_if_unchanged(path, text, expected=data)
            except CommitUnknownError:
                continue  # the answer was lost: what is there by now decides
            if is_written:
                return
        raise StorageError(
            "others keep changing the file of commit identifiers; try again",
            kind=ErrorKind.STORAGE,
            path=path,
        )
