"""Where a table or warehouse lies: a scheme, a bucket or container, and a prefix in it."""

import re
from dataclasses import replace

from lsm_engine.base.errors import UnsafePathError
from lsm_engine.base.record import record
from lsm_engine.storage.file_io import check_path

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_FILE = "file"
_WITH_DEFAULT = frozenset({"hdfs", "viewfs"})
"""Schemes whose authority may be left out: the configuration has a default."""
DATABASE_SUFFIX = ".db"


@record
class StorageLocation:
    """A location with a scheme, such as s3://bucket/lake/shop.db/orders.

    `authority`: the bucket or container, with the account or host where the scheme has one; the NameNode or
    name service of HDFS.
    """

    text: str
    scheme: str
    authority: str
    prefix: str

    def at(self, path: str) -> str:
        """Return the key of a path below this location."""
        return f"{self.prefix}/{path}" if self.prefix else path

    def above(self, prefix: str) -> "StorageLocation":
        """Return the location of another prefix of this bucket."""
        root = f"{self.text.partition('://')[0]}://{self.authority}"
        return replace(self, prefix=prefix, text=f"{root}/{prefix}".rstrip("/"))

    @property
    def warehouse(self) -> str:
        """The prefix of the warehouse that a table lies in, "<warehouse>/<database>.db/<table>"."""
        parts = self.prefix.split("/")
        if len(parts) >= 2 and parts[-2].endswith(DATABASE_SUFFIX):
            return "/".join(parts[:-2])
        return self.prefix


def scheme_of(location: str) -> str | None:
    """Return the scheme of a location, in lower case; None for a path on a disk of this machine."""
    match = _SCHEME.match(location)
    scheme = None if match is None else match.group(1).lower()
    return None if scheme == _FILE else scheme


def plain_path(location: str) -> str:
    """Return the path of a location on a disk of this machine: "file://", or Hadoop's "file:", taken away."""
    path = location.removeprefix("file://")
    return path.removeprefix("file:") if path.startswith("file:/") else path


def parse_location(text: str) -> StorageLocation:
    """Return a location's parts; raises UnsafePathError for one without bucket, or with '..' in it."""
    scheme = scheme_of(text)
    authority, _, prefix = text.partition("://")[2].partition("/")
    if scheme is None or not (authority or scheme in _WITH_DEFAULT):
        raise UnsafePathError(
            "a location needs a scheme and a bucket, such as s3://bucket/lake", location=text
        )
    prefix = prefix.strip("/")
    if prefix:
        check_path(prefix)
    return StorageLocation(text=text, scheme=scheme, authority=authority, prefix=prefix)
