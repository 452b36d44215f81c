"""Opening a table by its path, without a catalog and its database."""

import os
import re
from collections.abc import Mapping
from typing import Any

from lsm_engine.api.table import Table
from lsm_engine.base.arguments import checks_arguments
from lsm_engine.base.errors import ErrorKind, InvalidInputError, NotFoundError
from lsm_engine.ddl.open import open_session
from lsm_engine.storage.clock import Clock, IdSource
from lsm_engine.storage.options import StorageOptions
from lsm_engine.table.components import Executor


@checks_arguments
def open_table(
    path: str | os.PathLike[str],
    *,
    storage: Mapping[str, Any] | StorageOptions | None = None,
    executor: Executor | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
) -> Table:
    """Open any Paimon table directory, without a catalog; no catalog records its commits.

    `path` may have a scheme, such as s3://bucket/lake/shop.db/orders; `storage` then has the store's
    options, such as "s3.endpoint" (docs/object-stores.md), before those of the environment. Raises NotFoundError if there is no table, UnsupportedError, naming the option, if this version
    could not read it right.
    """
    if not isinstance(path, str | os.PathLike):
        raise InvalidInputError(
            "open_table takes the path of a table's directory", given=type(path).__name__
        )
    path = os.fspath(path)
    try:
        session = open_session(path, storage=storage, executor=executor, clock=clock, ids=ids)
    except NotFoundError as missing:
        # A catalog's directory, or a table's name, is the usual mistake: the error has the right call.
        meant = _meant(path)
        if meant is None or missing.kind is not ErrorKind.NO_SUCH_TABLE:
            raise
        raise NotFoundError(
            f"no table is in this directory; {meant}", kind=missing.kind, **missing.facts
        ) from missing
    return Table(session, path)


def _meant(path: str) -> str | None:
    """Return the call that opens a path which is not the directory of a table; None if no call does."""
    # The file of the default catalog marks a warehouse.
    if os.path.isfile(os.path.join(path, "catalog.db")):
        return f"it holds a catalog, which open_catalog({path!r}) opens"
    # A name of two words is how a catalog names its tables.
    if re.fullmatch(r"\w+\.\w+", path):
        return f"a table of a catalog is open_catalog(directory)[{path!r}]"
    return None
