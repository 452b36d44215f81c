"""Runs the state machine: on memory for breadth, on a local disk for a sample.

20 histories, the same ones in CI each time; 10,000, and what they covered, with
python -m tests.model.many_histories
"""

import tempfile
from pathlib import Path

from hypothesis import settings

from lsm_engine.storage.file_io import FileIO
from lsm_engine.storage.local import LocalFileIO
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.model.machine import TableMachine


class InMemory(TableMachine):
    """Histories over memory."""

    def storage(self) -> FileIO:
        return MemoryFileIO()


class OnDisk(TableMachine):
    """Histories over a local disk, without waiting for it."""

    def storage(self) -> FileIO:
        self._folder = tempfile.TemporaryDirectory(prefix="lsm-model-")
        return LocalFileIO(str(Path(self._folder.name) / "t"), durable=False)

    def teardown(self) -> None:
        if hasattr(self, "_folder"):
            self._folder.cleanup()


TestInMemory = InMemory.TestCase
TestInMemory.settings = settings(stateful_step_count=25)
TestOnDisk = OnDisk.TestCase
TestOnDisk.settings = settings(
    stateful_step_count=20, max_examples=max(5, settings.default.max_examples // 10)
)
