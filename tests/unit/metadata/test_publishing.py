"""Names that change, where the storage loses a reply."""

import pytest

from lsm_engine.base.errors import CommitUnknownError
from lsm_engine.metadata.consumers import ConsumerStore
from lsm_engine.metadata.publishing import deleted, replaced
from lsm_engine.storage.paths import TablePaths
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.fault.doubles import NumberedIds


class Unsteady(MemoryFileIO):
    """Loses the replies to changes: `applies` tells of each whether it is carried out; others run after it."""

    def __init__(self, *applies, then=lambda storage: None):
        super().__init__()
        self._applies = list(applies)
        self._then = then
        self.write_new("d/name", b"old")

    def change_if_unchanged(self, path, data, *, expected):
        return self._changed(
            lambda: super(Unsteady, self).change_if_unchanged(path, data, expected=expected)
        )

    def _changed(self, change):
        if not self._applies:
            return change()
        if self._applies.pop(0):
            change()
        self._then(self)
        raise CommitUnknownError("the reply was lost", path="d/name")


@pytest.mark.parametrize("applies", [(True,), (False,), (False, True), (False, False)])
def test_a_lost_reply_of_a_change_is_looked_up(applies):
    storage = Unsteady(*applies)
    if applies == (False, False):
        with pytest.raises(CommitUnknownError):
            replaced(storage, "d/name", b"new", expected=b"old")
        return
    assert replaced(storage, "d/name", b"new", expected=b"old")
    assert storage.read("d/name") == b"new"
    assert not replaced(storage, "d/name", b"newer", expected=b"old")


@pytest.mark.parametrize("applies", [(True,), (False,), (False, True)])
def test_a_lost_reply_of_a_deletion_is_looked_up(applies):
    storage = Unsteady(*applies)
    assert deleted(storage, "d/name", expected=b"old")
    assert not storage.exists("d/name")
    assert not deleted(storage, "d/name", expected=b"old")


def test_what_another_has_written_meanwhile_tells_nothing():
    for act in (
        lambda storage: replaced(storage, "d/name", b"new", expected=b"old"),
        lambda storage: deleted(storage, "d/name", expected=b"old"),
    ):
        storage = Unsteady(True, then=lambda each: MemoryFileIO.replace(each, "d/name", b"another"))
        with pytest.raises(CommitUnknownError):
            act(storage)
        assert storage.read("d/name") == b"another"


def test_a_consumer_that_moves_on_does_not_undo_what_others_have_done_since():
    storage = MemoryFileIO()
    consumers = ConsumerStore(storage, TablePaths(), NumberedIds())
    consumers.advance("reader", 3)
    read = storage.read

    def read_and_reset(path, offset=0, length=None):
        data = read(path, offset, length)
        storage.read = read
        ConsumerStore(storage, TablePaths(), NumberedIds()).reset("reader", 7)
        return data

    storage.read = read_and_reset
    consumers.advance("reader", 5)
    assert consumers.find("reader").next_snapshot_id == 7
    consumers.advance("reader", 9)
    assert consumers.find("reader").next_snapshot_id == 9
