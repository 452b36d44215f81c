"""What keeps keys of a table besides its files: the catalog, lookup files, spilled rows."""

import os
from collections.abc import Iterable, Iterator
from itertools import chain

from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.io.process_directory import default_roots, processes_of, sweep
from lsm_engine.io.shared_cache import clear_manifest_cache
from lsm_engine.io.spill import sweep_spills
from lsm_engine.table.find.lookup import process_cache
from lsm_engine.table.forget.forgotten_keys import ForgottenKeys, shown_text
from lsm_engine.table.forget.traces import Trace
from lsm_engine.table.ground.components import KeyHolder, StoredKeys
from lsm_engine.table.ground.session import TableSession

_COMPACTIONS = "compaction"


@record
class Outside:
    """What keeps keys besides a table's files. `alive`: other processes, which clear up themselves.

    `has_catalog`: whether the table was opened by its name in a catalog, which then is searched.
    """

    has_catalog: bool
    catalog_rows: int
    traces: tuple[Trace, ...]
    alive: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the catalog is known to hold a key."""
        return bool(self.catalog_rows or self.traces)

    def lines(self) -> Iterator[str]:
        """Yield it line by line, for people."""
        if not self.has_catalog:
            yield "no catalog was searched: the table was opened by its path; if it has a name in one, use that"
        if self.catalog_rows:
            yield f"{counted(self.catalog_rows, 'row')} of the catalog {'holds' if self.catalog_rows == 1 else 'hold'} a key"
        yield from (str(trace) for trace in self.traces)
        yield from self.alive


def texts_outside(session: TableSession, keys: ForgottenKeys) -> list[tuple[Trace, bytes]]:
    """Return the catalog's files that hold a text of the keys as bytes, and the text."""
    return [
        (Trace(kind="catalog", path=path, detail=f"{shown_text(text)} in its bytes"), text)
        for holder in _holders(session)
        for path, text in holder.files_with_texts(keys.texts)
    ]


def outside_of(session: TableSession, keys: StoredKeys, traces: Iterable[Trace]) -> Outside:
    """Look at what keeps keys besides the table's files. `traces`: what was found as bytes."""
    holders = _holders(session)
    rows = sum(holder.rows_with_keys(session.name, keys) for holder in holders)
    return Outside(
        has_catalog=bool(holders),
        catalog_rows=rows,
        traces=tuple(traces),
        alive=tuple(_lookup_files(session)),
    )


def clear_outside(session: TableSession, keys: StoredKeys) -> None:
    """Take keys out of the catalog; remove this process's lookup files, what dead ones left, and decoded manifests."""
    process_cache().close()
    for root in default_roots():
        sweep(root)
    sweep_spills()
    clear_manifest_cache()
    for holder in _holders(session):
        holder.forget_keys(session.name, keys)


def _holders(session: TableSession) -> list[KeyHolder]:
    return [
        listener for listener in session.components.listeners if isinstance(listener, KeyHolder)
    ]


def _lookup_files(session: TableSession) -> Iterator[str]:
    """Yield the processes that live and keep lookup files that may be of the table, but for this one."""
    for directory in chain.from_iterable(map(processes_of, default_roots())):
        tables = directory.state.get("tables")
        table_names = tables if isinstance(tables, dict) else {}
        is_other = directory.is_alive and directory.state.get("pid") != os.getpid()
        if directory.file_count and is_other and {session.name, _COMPACTIONS} & set(table_names):
            yield (
                f"process {directory.state.get('pid')} keeps lookup files in {directory.path}, perhaps with a "
                "key: they go when it ends, or after 'lookup.cache-file-retention'"
            )
