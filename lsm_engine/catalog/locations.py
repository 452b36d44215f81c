"""Where a catalog's tables lie, and the default place of its database."""

import hashlib
import os
import re

from lsm_engine.base.errors import InvalidInputError
from lsm_engine.storage.location import plain_path, scheme_of

LINEAGE_PAGE = "lineage.html"
"""The lineage page's name in the warehouse."""
_SQLITE = "sqlite:///"
DEFAULT_DIRECTORY = "lake"
_PLAIN = re.compile(r"[A-Za-z0-9]+:/(/[A-Za-z0-9]+)*")


def absolute_warehouse(warehouse: str) -> str:
    """Return the warehouse without a trailing slash, made absolute unless it has a scheme."""
    if not warehouse:
        raise InvalidInputError("a catalog needs a warehouse; give the directory of its tables")
    if scheme_of(warehouse) is not None:
        return warehouse.rstrip("/")
    return os.path.abspath(os.path.expanduser(plain_path(warehouse)))


def default_catalog_url(warehouse: str) -> str:
    """Return the database of a warehouse: catalog.db in its directory, on this machine at any rate.

    Of one with a scheme it is a file below ./lake, named after the warehouse: letters and digits as they are, with a
    digest at the end if there is anything else in it than slashes.
    """
    location = absolute_warehouse(warehouse)
    if scheme_of(location) is None:
        return f"{_SQLITE}{location}/catalog.db"
    name = re.sub(r"[^A-Za-z0-9]+", "-", location).strip("-")
    if not _PLAIN.fullmatch(location):  # others may differ from it in such signs alone
        name += f"-{hashlib.sha256(location.encode()).hexdigest()[:8]}"
    return f"{_SQLITE}{os.path.abspath(DEFAULT_DIRECTORY)}/{name}.db"
