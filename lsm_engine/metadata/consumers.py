"""Consumers: how far named readers of changes have got. Expiry keeps what they still need."""

from collections.abc import Callable, Sequence
from dataclasses import field as attribute

from lsm_engine.base.errors import NotFoundError, StorageError
from lsm_engine.base.record import record
from lsm_engine.format.documents import (
    decode_consumer,
    encode_consumer,
)
from lsm_engine.format.json_object import READ_MAX
from lsm_engine.metadata.publishing import deleted, published, replaced, stable_listing, unclaimed
from lsm_engine.metadata.schemas import TableIdentity
from lsm_engine.planning.names import checked_name
from lsm_engine.storage.bulk import forget_gathered
from lsm_engine.storage.clock import IdSource
from lsm_engine.storage.file_io import FileIO
from lsm_engine.storage.paths import CONSUMER_PREFIX, TablePaths

# -- Consumer: a named reader of changes, and how far it has got -----------------------------------


@record
class Consumer:
    """A named reader. `next_snapshot_id` is what it reads next: expiry keeps that and what follows.

    `modified_millis`: when it last moved, by the storage's own clock. `content`: the bytes of the file that it
    was read from, None of a consumer that is not stored; they do not count in comparisons.
    """

    name: str
    next_snapshot_id: int
    modified_millis: int = 0
    content: bytes | None = attribute(default=None, compare=False, repr=False)


_TRIES = 100  # moves of others that win before this one is given up

# -- Consumers -------------------------------------------------------------------------------------


class ConsumerStore:
    """The positions of the named readers of one table or branch (ConsumerManager)."""

    def __init__(
        self,
        file_io: FileIO,
        paths: TablePaths,
        ids: IdSource,
        identity: TableIdentity | None = None,
    ) -> None:
        """`identity`: of the table, which is asked after moves; None: the directory is always the table's."""
        self._identity = identity
        self._file_io = file_io
        self._paths = paths
        self._ids = ids

    def list(self) -> list[Consumer]:
        """Return every consumer by name. One that cannot be read is an error, not a gap."""
        consumers = [self.find(name) for name in self.names()]
        return [consumer for consumer in consumers if consumer is not None]

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
            content = self._content(path)
            modified = self._file_io.status(path).modified_millis
        except NotFoundError:
            # Also where the file went between the two calls.
            return None
        return None if content is None else self._decoded(name, content, modified)

    def find_now(self, name: str) -> Consumer | None:
        """Return what `find` does, from storage and not from a batched read."""
        forget_gathered(self._file_io, [self._paths.consumer_file(name)])
        return self.find(name)

    def reset(self, name: str, next_snapshot_id: int) -> tuple[Consumer | None, Consumer]:
        """Make a consumer, or move it, forwards or back; return it as it was, None if it is new, and as it is."""
        before, after = self.move(name, lambda _: next_snapshot_id)
        if after is None:
            raise AssertionError("a reset moves always")
        return before, after

    def advance(self, name: str, next_snapshot_id: int) -> None:
        """Move a consumer forwards, made if it is new; a position it has passed already changes nothing.

        Call it once what lies before `next_snapshot_id` has been dealt with for good. Raises as `require_there`.
        """
        before, after = self.move(
            name, lambda position: next_snapshot_id if (position or 0) < next_snapshot_id else None
        )
        if after is not None:
            self.require_there(after, before)

    def require_there(self, consumer: Consumer, before: Consumer | None) -> None:
        """Raise NotFoundError, a move taken back, where the directory holds another table by now.

        Raises CommitUnknownError where the table was renamed or dropped with the consumer.
        """
        if self._identity is not None and self._identity.is_dropped():
            if self.take_back(consumer, before):
                raise self._identity.dropped()
            raise self._identity.taken_along(f"consumer {consumer.name!r}")

    def move(
        self, name: str, position: Callable[[int | None], int | None]
    ) -> tuple[Consumer | None, Consumer | None]:
        """Let a consumer read another snapshot next, also if others move it meanwhile.

        `position` returns it of where the consumer is, which is None where there is no such consumer; or None: it stays. It
        is asked again after each move of others. Returns the consumer as it was and, if it moved, as it is. Raises
        StorageError where others keep moving it.
        """
        path = self._paths.consumer_file(checked_name("consumer", name, numeric=True))
        for _ in range(_TRIES):
            before = self._stored(name, path)
            next_snapshot_id = position(None if before is None else before.next_snapshot_id)
            if next_snapshot_id is None:
                return before, None
            data = encode_consumer(next_snapshot_id, name=name, consumer_id=self._ids.new_id())
            # Each call fails if another process was faster; then its position is read.
            if before is None or before.content is None:
                is_moved = published(self._file_io, path, data)
            else:
                is_moved = replaced(self._file_io, path, data, expected=before.content)
            if is_moved:
                return before, self._decoded(name, data)
        raise StorageError("others keep moving the consumer; try again", path=path)

    def take_back(self, consumer: Consumer, before: Consumer | None) -> bool:
        """Undo a move, whose answer `consumer` is; False, and no change, where others have moved it since."""
        if before is None:
            return self.delete_as_read(consumer)
        path = self._paths.consumer_file(consumer.name)
        data = encode_consumer(
            before.next_snapshot_id, name=before.name, consumer_id=self._ids.new_id()
        )
        return consumer.content is not None and replaced(
            self._file_io, path, data, expected=consumer.content
        )

    def delete_as_read(self, consumer: Consumer) -> bool:
        """Forget a consumer; False, and no change, if it has moved since it was read, or is forgotten."""
        path = self._paths.consumer_file(consumer.name)
        return consumer.content is not None and deleted(
            self._file_io, path, expected=consumer.content
        )

    def delete(self, name: str) -> bool:
        """Forget a consumer, wherever it is; False if there was none. Expiry no longer waits for it."""
        path = self._paths.consumer_file(name)
        for _ in range(_TRIES):
            content = self._content(path)
            if content is None:
                return False
            if deleted(self._file_io, path, expected=content):
                return True
        raise StorageError("others keep moving the consumer; try again", path=path)

    def _stored(self, name: str, path: str) -> Consumer | None:
        content = self._content(path)
        return None if content is None else self._decoded(name, content)

    def _content(self, path: str) -> bytes | None:
        """Return what the file of a consumer holds; None: there is none, or only a claim on the branch."""
        try:
            data = self._file_io.read(path, length=READ_MAX)
        except NotFoundError:
            return None
        return unclaimed(self._file_io, self._paths, path, data)

    def _decoded(self, name: str, content: bytes, modified_millis: int = 0) -> Consumer:
        return Consumer(
            name=name,
            next_snapshot_id=decode_consumer(
                content, name=name, file_name=self._paths.consumer_file(name)
            ),
            modified_millis=modified_millis,
            content=content,
        )
