"""Columns that an answer adds to those of the table: no table of others may have them already."""

from collections.abc import Collection, Iterable

from lsm_engine.base.errors import UnsupportedError


def refuse_taken(names: Iterable[str], added: Collection[str], what: str) -> None:
    """Raise UnsupportedError, naming them, where columns have the names that `what` adds."""
    taken = sorted(set(names).intersection(added))
    if taken:
        raise UnsupportedError(
            f"the table has columns of the names that {what} adds; rename them", columns=taken
        )
