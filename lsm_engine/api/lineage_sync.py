"""The lineage follows the files: `LineageSync` records what the tables' files hold and the catalog lacks.

Commits, tags and branches record nothing. The snapshots, tags and branches of a table are read when its lineage is
asked for, and before maintenance takes some of them away (decision 68)."""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from lsm_engine.base.errors import CorruptFileError, LsmError, NotFoundError, StorageError
from lsm_engine.base.record import record
from lsm_engine.catalog.lineage.facts import (
    BASE_LIST,
    CHANGELOG_LIST,
    DELTA_LIST,
    CommitFacts,
    InheritedFiles,
    LineageError,
    ManifestListFacts,
    RemovalFacts,
    TagFacts,
    commit_facts,
    inherited_files,
)
from lsm_engine.catalog.lineage.lineage import (
    EXPIRY,
    FACTS_PER_TRANSACTION,
    Lineage,
    RecordedState,
    pieces,
    tag_row,
)
from lsm_engine.catalog.names import TableName
from lsm_engine.catalog.sql_catalog import SqlCatalog
from lsm_engine.format.manifest import StoredKeys
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.planning.names import MAIN_BRANCH
from lsm_engine.planning.tags import is_lock
from lsm_engine.storage.clock import SystemClock
from lsm_engine.table.branches import branches, on_branch
from lsm_engine.table.bucket_context import key_order_of, partition_path_of
from lsm_engine.table.components import CommittedFiles, PublishedSnapshot, Removal
from lsm_engine.table.live_files import live_entries
from lsm_engine.table.references import committed_files
from lsm_engine.table.session import TableSession
from lsm_engine.types.table_schema import TableSchema

log = logging.getLogger(__name__)

_REST_MILLIS = 1_000
"""How long questions are answered from what is recorded after the catalog was busy: each would wait again."""
_REMOVALS_MAX = 1_000
_TAKES_NEWEST = ("rollback", "repair")
"""Kinds of removals that take the newest snapshots."""
_NOTHING_RECORDED = RecordedState(live={}, tags={})

# -- What a table's files hold ---------------------------------------------------------------------


def commits_in_files(
    read: Callable[[Snapshot], CommittedFiles],
    table: TableName,
    snapshots: Mapping[int, Snapshot],
    expired: Iterable[int],
    *,
    skips_damaged: bool = False,
) -> Iterator[CommitFacts | InheritedFiles]:
    """Yield the facts of snapshots in the order of their ids, after the files that older ones had added.

    `expired`: those that only a tag keeps. A snapshot that expires meanwhile is left out, and with `skips_damaged` one
    that cannot be read.
    """
    expired_ids = set(expired)
    for number in sorted(snapshots):
        try:
            facts = _facts(table, read(snapshots[number]), expired=number in expired_ids)
        except NotFoundError:
            continue  # expired while we read: history that can no longer be read
        except CorruptFileError as error:
            if not skips_damaged:
                raise
            log.warning("snapshot %d of %s is not recorded: %s", number, table, error)
            continue
        yield facts


def files_before(
    session: TableSession, table: TableName, first: Snapshot
) -> Iterator[InheritedFiles]:
    """Yield the files that were there before a snapshot; of a branch they are main's.

    Expired snapshots added these files; no commit that can still be read did.
    """
    inherited = session.manifest_list(first, first.base_manifest_list)
    if inherited and table.branch == MAIN_BRANCH:
        partition_text = partial(partition_path_of, session.schema)
        yield inherited_files(table, live_entries(session.manifests, inherited), partition_text)


def _facts(table: TableName, files: CommittedFiles, *, expired: bool) -> CommitFacts:
    return commit_facts(
        table,
        files.snapshot,
        manifest_lists=_lists(files),
        entries=files.delta,
        changelog_entries=files.changelog,
        partition_text=partial(partition_path_of, files.schema),
        key_order=key_order_of(files.schema),
        expired=expired,
    )


def _lists(files: CommittedFiles) -> Iterator[ManifestListFacts]:
    snapshot = files.snapshot
    for kind, name, size, manifests in (
        (
            BASE_LIST,
            snapshot.base_manifest_list,
            snapshot.base_manifest_list_size,
            files.base_manifests,
        ),
        (
            DELTA_LIST,
            snapshot.delta_manifest_list,
            snapshot.delta_manifest_list_size,
            files.delta_manifests,
        ),
        (
            CHANGELOG_LIST,
            snapshot.changelog_manifest_list,
            snapshot.changelog_manifest_list_size,
            files.changelog_manifests,
        ),
    ):
        if name is not None:
            yield ManifestListFacts(kind=kind, file_name=name, file_size=size, manifests=manifests)


def _own_tags(session: TableSession) -> list[Tag]:
    """Return the tags of a table, without those that operations make for as long as they run."""
    return [tag for tag in session.tags.list() if not is_lock(tag.name)]


def rebuild_lineage(session: TableSession, lineage: Lineage) -> int:
    """Record everything that the files of a table, or a branch, hold; return the number of snapshots.

    Gives the same rows as syncs after each commit, for what the files still know.
    """
    table = _recorded_name(session)
    tags = _own_tags(session)
    facts = (TagFacts(table=table, tag=tag) for tag in tags)
    return lineage.rebuild(table, _history(session, table, tags), facts)


def _history(
    session: TableSession, table: TableName, tags: Iterable[Tag]
) -> Iterator[CommitFacts | InheritedFiles]:
    tagged = {tag.snapshot.id: tag.snapshot for tag in tags}
    live = {snapshot.id: snapshot for snapshot in session.snapshots.all()}
    snapshots = {**tagged, **live}
    # A table without snapshots and tags has no history.
    if snapshots:
        yield from files_before(session, table, snapshots[min(snapshots)])
        read = partial(committed_files, session)
        yield from commits_in_files(read, table, snapshots, tagged.keys() - live.keys())


def _recorded_name(session: TableSession) -> TableName:
    return replace(TableName.parse(session.name), branch=session.paths.branch_name or MAIN_BRANCH)


# -- Sync: what is new since the last one ----------------------------------------------------------


def sync_branch(
    session: TableSession,
    recorded: RecordedState,
    lineage: Lineage,
    *,
    is_rolled_back: bool = False,
) -> int:
    """Record what is new in a table, or one of its branches; return the number of commits recorded.

    `recorded` was read before. A sync that dies is finished by the next, and several at once record the same rows.
    Recorded snapshots above the newest are forgotten if the table `is_rolled_back` by this process. Else they stay
    until their ids have others: `lsm doctor` names them, as the newest snapshots may be lost.
    """
    table = _recorded_name(session)
    ids = session.snapshots.ids()
    tags = _own_tags(session)
    new_ids = _unrecorded_ids(session, ids, recorded)
    tag_rows = {tag.name: tag_row(0, tag) for tag in tags}
    recorded_rows = {name: {**row, "table_id": 0} for name, row in recorded.tags.items()}
    newest = max(ids, default=0)
    old_ids = {number for number in recorded.live if number <= newest or is_rolled_back}
    if not new_ids and set(ids) == old_ids and tag_rows == recorded_rows:
        return 0
    snapshots = {
        snapshot.id: snapshot
        for snapshot in session.snapshots.find_many(new_ids)
        if snapshot is not None
    }
    # Files of a snapshot that expired before any sync are known by a tag alone.
    tagged = {
        tag.snapshot.id: tag.snapshot
        for tag in tags
        if tag.snapshot.id not in ids
        and tag_rows[tag.name] != recorded_rows.get(tag.name)
        and not lineage.has_snapshot(table, tag.snapshot.id)
    }
    facts = _new_facts(session, {**tagged, **snapshots}, tagged, recorded, lineage)
    return lineage.catch_up(
        table,
        facts,
        [TagFacts(table=table, tag=tag) for tag in tags],
        live_ids=set(ids) - set(new_ids),
        before=recorded.live if is_rolled_back else {},
    )


def _new_facts(
    session: TableSession,
    snapshots: Mapping[int, Snapshot],
    expired: Iterable[int],
    recorded: RecordedState,
    lineage: Lineage,
) -> Iterator[CommitFacts | InheritedFiles]:
    if not snapshots:
        return
    table, first = _recorded_name(session), snapshots[min(snapshots)]
    is_next = first.id == 1 or first.id - 1 in recorded.live
    # After a gap in the recorded history it is unknown which snapshots added the files.
    if not is_next and not lineage.has_snapshot(table, first.id - 1):
        try:
            yield from files_before(session, table, first)
        except (NotFoundError, CorruptFileError) as error:
            # The commits that can be read are recorded all the same.
            log.warning(
                "the files of %s before snapshot %d are unknown: %s", table, first.id, error
            )
    read = partial(committed_files, session)
    yield from commits_in_files(read, table, snapshots, expired, skips_damaged=True)


def _unrecorded_ids(
    session: TableSession, ids: Iterable[int], recorded: RecordedState
) -> list[int]:
    """Return the snapshots that are not recorded, or recorded with another content, oldest first.

    A rollback takes the newest ones, so the search for another content ends at the first snapshot that is as recorded.
    """
    new_ids = {number for number in ids if number not in recorded.live}
    for number in sorted(set(ids) - new_ids, reverse=True):
        snapshot = session.snapshots.find(number)
        if snapshot is not None and snapshot.delta_manifest_list == recorded.live[number]:
            break
        log.warning(
            "snapshot %d of %s is another than was recorded: it was rolled back, or replaced",
            number,
            session.name,
        )
        new_ids.add(number)
    return sorted(new_ids)


def sync_table(session: TableSession, lineage: Lineage, *, rolled_back: str | None = None) -> int:
    """Record what is new in a table and its branches; return the number of commits of main recorded.

    A branch that cannot be read is left out, with a warning; the lineage of a deleted branch goes. `rolled_back`: the
    branch that this process has rolled back.
    """
    name = TableName.parse(session.name)
    states = lineage.recorded_states(name)
    count = sync_branch(
        session,
        states.get(MAIN_BRANCH, _NOTHING_RECORDED),
        lineage,
        is_rolled_back=rolled_back == MAIN_BRANCH,
    )
    branch_names = branches(session).names()
    for branch in branch_names:
        try:
            sync_branch(
                on_branch(session, branch),
                states.get(branch, _NOTHING_RECORDED),
                lineage,
                is_rolled_back=rolled_back == branch,
            )
        except LineageError:
            raise
        except LsmError as error:  # other branches are recorded all the same
            log.warning("the lineage of branch %s of %s is not synced: %s", branch, name, error)
    for branch in states.keys() - {MAIN_BRANCH, *branch_names}:
        if states[branch] != _NOTHING_RECORDED:
            lineage.forget(replace(name, branch=branch))
    return count


class LineageSync:
    """Brings the lineage of a catalog up to the files of its tables. Threads and processes may share one.

    `is_named` returns whether the catalog names a table, `table_names` returns all of these, and `open_table` the session
    of one.
    """

    def __init__(
        self,
        names: SqlCatalog,
        *,
        open_table: Callable[[str], TableSession],
        is_named: Callable[[str], bool],
        table_names: Callable[[], list[str]],
    ) -> None:
        self._names = names
        self._open_table = open_table
        self._is_named = is_named
        self._table_names = table_names
        self._rests_until_millis = 0
        self._removals: deque[RemovalFacts] = deque(maxlen=_REMOVALS_MAX)

    def record_removal(self, removal: RemovalFacts) -> None:
        """Record a removal; where the catalog is busy, the next question or removal of this process does."""
        self._removals.append(removal)
        self._record_removals(self._names.hurried_lineage)

    def _record_removals(self, lineage: Lineage) -> None:
        for removal in list(self._removals):
            lineage.record(removal)
            # Without this the doctor would miss the snapshots: those of a rollback for ever, as no later sync knows of
            # it. So a removal waits until both are done.
            if removal.snapshot_ids and removal.kind != EXPIRY:
                is_rollback = removal.kind in _TAKES_NEWEST
                rolled_back = removal.table.branch if is_rollback else None
                self._sync(_main(removal.table), lineage, rolled_back=rolled_back)
            # Another thread may have recorded the same, or adds one.
            with suppress(ValueError, IndexError):
                self._removals.remove(removal)

    def close(self) -> None:
        """Record the removals that wait, if the catalog is not busy."""
        try:
            self._record_removals(self._names.hurried_lineage)
        except LineageError as error:
            log.warning("removals are not recorded: %s", error.__cause__ or error)

    def before_question(self, table: TableName | None) -> None:
        """Sync a table, or all, for a question; what cannot be synced is answered from what is recorded."""
        if SystemClock().monotonic_millis() < self._rests_until_millis:
            return
        try:
            self._record_removals(self._names.hurried_lineage)
            if table is not None:
                self._sync(_main(table), self._names.hurried_lineage)
                return
            for name in self._table_names():
                self._sync(name, self._names.hurried_lineage)
        except LineageError as error:
            self._rests_until_millis = SystemClock().monotonic_millis() + _REST_MILLIS
            log.warning("the lineage is not up to date: %s", error.__cause__ or error)

    def _sync(
        self,
        name: str,
        lineage: Lineage,
        *,
        rolled_back: str | None = None,
        before_removal: bool = False,
    ) -> None:
        """Sync a table that the catalog names; a failure is logged.

        `before_removal`: a storage that does not answer is an error.
        """
        # The lineage of a table that the catalog names no more is forgotten, and stays so.
        if not self._is_named(name):
            return
        try:
            try:
                session = self._open_table(name)
            except NotFoundError:
                return  # dropped, or never there: what is recorded is all that there is
            sync_table(session, lineage, rolled_back=rolled_back)
        except LineageError:
            raise
        except LsmError as error:
            if before_removal and isinstance(error, StorageError):
                raise  # it may answer later: what is removed now could be recorded then
            # One damaged table does not hide the others.
            log.warning("the lineage of table %s is not up to date: %s", name, error)

    def after_commit(self, name: str, published: PublishedSnapshot) -> None:
        """Record a snapshot right after its commit: another client may replace it, and `lsm doctor` compares the record then.

        Where its base is the newest that is recorded, the record of the others is not read: it is as long as the
        history. Otherwise the table is synced.
        """
        lineage = self._names.hurried_lineage
        table = replace(TableName.parse(name), branch=published.branch)
        base, snapshot = published.base, published.snapshot
        if base is None or lineage.newest_live(table) != (base.id, base.delta_manifest_list):
            self._sync(name, lineage)
        elif self._is_named(name):
            lineage.record(*commits_in_files(published.read, table, {snapshot.id: snapshot}, ()))

    def before_removal(self, name: str) -> None:
        """Sync a table before maintenance takes something away; LineageError: then nothing may be taken.

        What cannot be read cannot be recorded, and is no reason to keep it. A catalog in memory ends with the process.
        """
        if not self._names.database.is_in_memory:
            self._record_removals(self._names.lineage)
            self._sync(name, self._names.lineage, before_removal=True)

    def before_expiry(
        self, name: str, snapshots: Sequence[Snapshot], read: Callable[[Snapshot], CommittedFiles]
    ) -> None:
        """Record the snapshots that expire and are not recorded; LineageError: then none may expire.

        Their files are read, and nothing else of the table, as an expiry reads them anyway. A whole sync follows the
        tables whose recorded history has a gap before them, or others of their ids.
        """
        if self._names.database.is_in_memory or not self._is_named(name):
            return
        lineage = self._names.lineage
        self._record_removals(lineage)
        table = TableName.parse(name)
        recorded = lineage.recorded_states(table).get(MAIN_BRANCH, _NOTHING_RECORDED).live
        new = [snapshot for snapshot in snapshots if snapshot.id not in recorded]
        is_as_recorded = all(
            recorded.get(snapshot.id, snapshot.delta_manifest_list) == snapshot.delta_manifest_list
            for snapshot in snapshots
        )
        if not (is_as_recorded and (not new or _follows(new[0].id, recorded, table, lineage))):
            self._sync(name, lineage, before_removal=True)
            return
        facts = commits_in_files(
            read, table, {snapshot.id: snapshot for snapshot in new}, (), skips_damaged=True
        )
        for piece in pieces(facts, FACTS_PER_TRANSACTION):
            lineage.record(*piece)


def _follows(
    snapshot_id: int, recorded: Collection[int], table: TableName, lineage: Lineage
) -> bool:
    """Whether a snapshot is the first that is not recorded: that before it is, and no later one."""
    if any(number > snapshot_id for number in recorded):
        return False
    return snapshot_id == 1 or lineage.has_snapshot(table, snapshot_id - 1)


def _main(table: TableName) -> str:
    return f"{table.database}.{table.table}"


# -- Listener: what no file of a table holds -------------------------------------------------------


@contextmanager
def refusing_removals(table: str, names: SqlCatalog) -> Iterator[None]:
    """Raise LineageError, as nothing was removed, for an error of the block."""
    try:
        yield
    except LsmError as error:
        raise LineageError(
            "nothing was removed, as the catalog cannot record the lineage of what would go; try again, or open "
            "the table by its path to do without",
            table=table,
            catalog=names.database.shown_url,
        ) from error


@record
class CatalogListener:
    """A TableListener that keeps the catalog's copy of options and what maintenance removed, and why."""

    names: SqlCatalog
    sync: LineageSync

    def altered(self, table: str, schema: TableSchema) -> None:
        """Copy the options and keys of the table to the catalog, for people who read it."""
        self.names.replace_table_properties(
            TableName.parse(table),
            options=schema.options.texts,
            primary_key=schema.primary_keys,
            partitioned_by=schema.partition_keys,
        )

    def shown_by_iceberg(
        self, table: str, options: Mapping[str, str], current: Callable[[], str | None]
    ) -> None:
        """Name the Iceberg metadata of a table for readers of Iceberg's JDBC catalog."""
        # A catalog in memory has no other readers.
        if not self.names.database.is_in_memory:
            name = TableName.parse(table)
            self.names.replace_iceberg_location(name, name.in_iceberg(options), current)

    def committed_beside_others(self, table: str, published: PublishedSnapshot) -> None:
        """Record a snapshot that a rename of another client may replace later."""
        self.sync.after_commit(table, published)

    def removing(self, table: str) -> None:
        """Record what is going to be removed, or raise LineageError, so that it is kept."""
        with refusing_removals(table, self.names):
            self.sync.before_removal(table)

    def expiring(
        self,
        table: str,
        snapshots: Sequence[Snapshot],
        read: Callable[[Snapshot], CommittedFiles],
    ) -> None:
        """Record the snapshots that expire, or raise LineageError, so that they are kept."""
        with refusing_removals(table, self.names):
            self.sync.before_expiry(table, snapshots, read)

    def removed(self, table: str, removal: Removal) -> None:
        """Record which files maintenance removed, and why."""
        self.sync.record_removal(
            RemovalFacts(
                table=replace(TableName.parse(table), branch=removal.branch or MAIN_BRANCH),
                removal_id=removal.removal_id,
                kind=removal.kind,
                reason=removal.reason,
                at_millis=removal.at_millis,
                snapshot_ids=removal.snapshot_ids,
                tags=removal.tags,
                file_count=len(removal.files),
                freed_bytes=removal.freed_bytes,
                removed_files=removal.files,
            )
        )

    def rows_with_keys(self, table: str, keys: StoredKeys) -> int:
        """Return how many rows about a table hold a key, or an emptied partition."""
        return self.names.rows_with_keys(TableName.parse(table), keys)

    def forget_keys(self, table: str, keys: StoredKeys) -> None:
        """Take keys out of the catalog's rows, and out of the bytes of its files."""
        self.names.forget_keys(TableName.parse(table), keys)

    def files_with_texts(self, texts: tuple[bytes, ...]) -> tuple[tuple[str, bytes], ...]:
        """Return the catalog's files that hold one of some texts, and the text."""
        return self.names.files_with_texts(texts)
