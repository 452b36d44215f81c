"""Consumers: how far named readers of changes have got. Expiry keeps what they still need."""

from collections.abc import Sequence

from lsm_engine.base.errors import NotFoundError
from lsm_engine.codec.documents import decode_consumer, encode_consumer
from lsm_engine.codec.json_object import READ_MAX
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.paths import CONSUMER_PREFIX, TablePaths
from lsm_engine.meta.consumer import Consumer
from lsm_engine.plan.names import checked_name
from lsm_engine.store.listing import stable_listing


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
            data = self._file_io.read(path, length=READ_MAX)
            modified = self._file_io.status(path).modified_millis
        except NotFoundError:
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
        there = self.find(name)
        if there is None or there.next_snapshot_id < next_snapshot_id:
            self.reset(name, next_snapshot_id)

    def delete(self, name: str) -> bool:
        """Forget a consumer; False if there was none. Expiry no longer waits for it."""
        return self._file_io.delete(self._paths.consumer_file(name))
