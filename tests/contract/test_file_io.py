"""The FileIO contract, held against every adapter and the double that tests are written with."""

import pytest

from lsm_engine.storage.local import LocalFileIO
from lsm_engine.testing.file_io_suite import DirectoryFileIOSuite
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.fault.recording_file_io import RecordingFileIO


class TestLocal(DirectoryFileIOSuite):
    @pytest.fixture
    def storage(self, tmp_path):
        return LocalFileIO(str(tmp_path / "table"))


class TestLocalNotDurable(DirectoryFileIOSuite):
    @pytest.fixture
    def storage(self, tmp_path):
        return LocalFileIO(str(tmp_path / "table"), durable=False)

    @pytest.mark.skip(reason="nothing is synced")
    def test_sync_of_files(self):
        pass

    @pytest.mark.skip(reason="nothing is synced")
    def test_unsafe_paths_touch_nothing(self):
        pass


class TestMemory(DirectoryFileIOSuite):
    @pytest.fixture
    def storage(self):
        return MemoryFileIO()


class TestRecording(DirectoryFileIOSuite):
    @pytest.fixture
    def storage(self):
        return RecordingFileIO(MemoryFileIO())
