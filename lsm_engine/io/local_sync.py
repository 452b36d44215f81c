"""Waiting for a disk of this machine."""

import os

from lsm_engine.io.storage_errors import naming_path


def sync_path(real: str) -> None:
    """Wait until a file, or the names in a directory, are on the disk."""
    sync_and_close(os.open(real, os.O_RDONLY | os.O_CLOEXEC))


def sync_above(directory: tuple[str, str]) -> None:
    """Wait for the names in a directory; an error names a path below it, which comes with it."""
    real, path = directory
    with naming_path(path):
        sync_path(real)


def sync_and_close(descriptor: int) -> None:
    """Wait until what was written to a file is on the disk, and close it."""
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
