"""Clients of HDFS, made by hdfs-native from a location and storage options; and its failures as errors.

The library speaks the protocol itself: no Java. It reads core-site.xml and hdfs-site.xml of the directory
that the option `hadoop-conf-dir` or HADOOP_CONF_DIR names, moves to the active NameNode, and
logs in as HADOOP_USER_NAME or by Kerberos.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hdfs_native import Client

from lsm_engine.base.errors import (
    AlreadyExistsError,
    InvalidOptionError,
    LsmError,
    NotFoundError,
    StorageError,
)
from lsm_engine.io.shared_clients import SharedClients
from lsm_engine.io.storage_location import StorageLocation
from lsm_engine.io.storage_options import (
    HDFS,
    HDFS_CONFIGURATION,
    StorageOptions,
)

FAILURES = (OSError, RuntimeError, ValueError)
"""Exceptions of the library."""

# The library has no class for most answers: it shows the Java class of the NameNode's.
_ANSWER = re.compile(
    r'RPCError\("(?:[A-Za-z0-9_$]+\.)*([A-Za-z0-9_$]+)", "(.*?)(?:\\n|"\)|$)', re.S
)
_REMEDIES = {
    "ParentNotDirectoryException": "a file is where a directory should be; move it away",
    "InvalidPathException": "HDFS has no such names: they hold no ':'",
    "AccessControlException": "HDFS refuses this to the user; give it access, or log in as another "
    "(HADOOP_USER_NAME, Kerberos)",
    "SafeModeException": "the NameNode is in safe mode; try again once it has left it",
    "DSQuotaExceededException": "the directory's quota of bytes is used up; free space, then retry",
    "NSQuotaExceededException": "the directory's quota of names is used up; delete some, then retry",
    "StandbyException": "no NameNode is active; try again later",
}


def _client(location: StorageLocation, options: StorageOptions) -> Any:
    settings = options.settings(HDFS)
    configuration = {
        name.removeprefix(HDFS_CONFIGURATION): text
        for name, text in settings.items()
        if name.startswith(HDFS_CONFIGURATION)
    }
    # Without an authority the cluster is that of fs.defaultFS.
    url = f"{location.scheme}://{location.authority}" if location.authority else None
    try:
        return Client(
            url,
            configuration or None,
            settings.get("config_dir"),
            kerberos_principal=settings.get("principal"),
            kerberos_keytab=settings.get("keytab"),
        )
    except FAILURES as cause:
        raise InvalidOptionError(
            f"no client of HDFS can be made: {_reason(cause)}; the location names a NameNode, or a "
            "name service of the configuration (hadoop-conf-dir, HADOOP_CONF_DIR)",
            location=location.text,
        ) from cause


shared = SharedClients(_client)


@contextmanager
def naming_path(path: str, store: str) -> Iterator[None]:
    """Raise exceptions of the library as errors that name the path and the store."""
    try:
        yield
    except LsmError:  # some are errors of Python's kinds, too
        raise
    except FAILURES as cause:
        raise to_error(path, cause, store=store) from cause


def to_error(path: str, cause: Exception, *, store: str) -> LsmError:
    """Return the error to raise, `from cause`."""
    if isinstance(cause, FileNotFoundError) and "is not a file" not in str(cause):
        return NotFoundError("no such file", path=path, store=store)
    if isinstance(cause, FileExistsError):
        return AlreadyExistsError(
            "a file is already there; nothing was changed", path=path, store=store
        )
    name = "AccessControlException" if isinstance(cause, PermissionError) else answer_of(cause)
    if name is None and not isinstance(cause, FileNotFoundError):
        text = f"HDFS cannot be reached, or did not answer ({_reason(cause)}); try again later"
        return StorageError(text, path=path, store=store)
    text = _REMEDIES.get(name or "", f"HDFS refused this: {_reason(cause)}")
    return StorageError(text, path=path, store=store, answer=name)


def answer_of(cause: Exception) -> str | None:
    """Return the class of the NameNode's answer; None without an answer: the outcome is unknown."""
    match = _ANSWER.search(str(cause))
    return None if match is None else match.group(1)


def _reason(cause: Exception) -> str:
    match = _ANSWER.search(str(cause))
    text = str(cause) if match is None else match.group(2)
    return (text.strip() or type(cause).__name__).partition("\n")[0][:300]
