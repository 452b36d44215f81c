"""Reports to the catalog what has become visible, right after a commit or from files alone."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from lsm_engine.base.errors import NotFoundError
from lsm_engine.base.record import record
from lsm_engine.catalog.facts import (
    BASE_LIST,
    CHANGELOG_LIST,
    DELTA_LIST,
    CommitFacts,
    ExpiryFacts,
    Fact,
    InheritedFiles,
    ManifestListFacts,
    RemovalFacts,
    RollbackFacts,
    TagDeletion,
    TagFacts,
    commit_facts,
    inherited_files,
)
from lsm_engine.catalog.forgotten_rows import HeldKeys
from lsm_engine.catalog.lineage import Lineage
from lsm_engine.catalog.names import MAIN_BRANCH, TableName
from lsm_engine.catalog.sql_catalog import SqlCatalog
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.table.ground.committed_files import committed_files
from lsm_engine.table.ground.components import CommittedFiles, Removal, StoredKeys
from lsm_engine.table.ground.live_files import live_entries
from lsm_engine.table.ground.schema_keys import key_order_of, partition_path_of
from lsm_engine.table.ground.session import TableSession


@record
class CatalogListener:
    """A TableListener that keeps the catalog in step. Tables are named "database.table"."""

    names: SqlCatalog
    branch: str = MAIN_BRANCH

    def _deliver(self, fact: Fact) -> None:
        """Have a fact recorded, now or later: nobody waits for the catalog."""
        self.names.outbox.deliver(fact)

    def altered(self, table: str, schema: TableSchema) -> None:
        """Copy the options and keys anew, for people who look at the catalog; not those of a branch."""
        if self.branch != MAIN_BRANCH:
            return
        self.names.replace_table_properties(
            TableName.parse(table),
            options=schema.options.texts,
            primary_key=schema.primary_keys,
            partitioned_by=schema.partition_keys,
        )

    def committed(self, table: str, files: CommittedFiles) -> None:
        """Record a snapshot with its manifests and files."""
        self._deliver(_facts(self._table(table), files))

    def tagged(self, table: str, tag: Tag) -> None:
        """Record a tag."""
        self._deliver(TagFacts(table=self._table(table), tag=tag))

    def untagged(self, table: str, name: str) -> None:
        """Record that a tag was deleted."""
        self._deliver(TagDeletion(table=self._table(table), tag_name=name))

    def expired(
        self, table: str, snapshot_ids: tuple[int, ...], removed_files: tuple[str, ...]
    ) -> None:
        """Record which snapshots and files an expiry removed."""
        self._deliver(
            ExpiryFacts(
                table=self._table(table),
                snapshot_ids=tuple(snapshot_ids),
                removed_files=tuple(removed_files),
            )
        )

    def rolled_back(self, table: str, to_snapshot_id: int, sealed_millis: int | None) -> None:
        """Delete the facts of the snapshots that a rollback removed, not of those committed since."""
        self._deliver(
            RollbackFacts(
                table=self._table(table), to_snapshot_id=to_snapshot_id, at_millis=sealed_millis
            )
        )

    def removed(self, table: str, removal: Removal) -> None:
        """Record which files maintenance removed, and why."""
        self._deliver(
            RemovalFacts(
                table=self._table(table),
                removal_id=removal.removal_id,
                kind=removal.kind,
                reason=removal.reason,
                at_millis=removal.at_millis,
                snapshot_ids=removal.snapshot_ids,
                tags=removal.tags,
                file_count=len(removal.files),
                freed_bytes=removal.freed_bytes,
            )
        )

    def rows_with_keys(self, table: str, keys: StoredKeys) -> int:
        """Return how many rows about a table hold a key, or an emptied partition."""
        return self.names.rows_with_keys(TableName.parse(table), _held(keys))

    def forget_keys(self, table: str, keys: StoredKeys) -> None:
        """Take keys out of the catalog's rows, and out of the bytes of its files."""
        self.names.forget_keys(TableName.parse(table), _held(keys))

    def files_with_texts(self, texts: tuple[bytes, ...]) -> tuple[tuple[str, bytes], ...]:
        """Return the catalog's files that hold one of some texts, and the text."""
        return self.names.files_with_texts(texts)

    def on_branch(self, branch: str) -> "CatalogListener":
        """Return the listener for a branch: its snapshots have a lineage of their own."""
        return replace(self, branch=branch)

    def _table(self, table: str) -> TableName:
        return replace(TableName.parse(table), branch=self.branch)


def _held(keys: StoredKeys) -> HeldKeys:
    return HeldKeys(
        keys=keys.by_partition, emptied_partitions=tuple(keys.emptied_partitions), texts=keys.texts
    )


def rebuild_lineage(session: TableSession, lineage: Lineage) -> int:
    """Record everything that a table's files hold; return the number of snapshots recorded.

    Gives the same rows as recording commit by commit, for what the files still know. Of a branch the
    files that main had added before it began are main's.
    """
    branch = session.paths.branch_name or MAIN_BRANCH
    table = replace(TableName.parse(session.name), branch=branch)
    tags = session.tags.list()
    facts = [TagFacts(table=table, tag=tag) for tag in tags]
    return lineage.rebuild(table, _history(session, table), facts)


def record_commits(session: TableSession, lineage: Lineage, snapshot_ids: Iterable[int]) -> int:
    """Record those snapshots that the lineage does not have; return how many they were."""
    table = TableName.parse(session.name)
    wanted = set(snapshot_ids)
    if not wanted:
        return 0
    known = lineage.commits_of_table(table, after=min(wanted) - 1, before=max(wanted) + 1)
    marks = set(
        zip(known["snapshot_id"].to_pylist(), known["delta_manifest_list"].to_pylist(), strict=True)
    )
    facts = []
    for number in sorted(wanted):
        try:
            snapshot = session.snapshots.load(number)
            if (number, snapshot.delta_manifest_list) not in marks:
                facts.append(_facts(table, committed_files(session, snapshot)))
        except NotFoundError:
            continue  # expired while we read
    if facts:
        lineage.record(*facts)
    return len(facts)


def _history(session: TableSession, table: TableName) -> Iterator[CommitFacts | InheritedFiles]:
    snapshots: dict[int, Snapshot] = {tag.snapshot.id: tag.snapshot for tag in session.tags.list()}
    expired = set(snapshots)
    for snapshot in session.snapshots.all():
        snapshots[snapshot.id] = snapshot
        expired.discard(snapshot.id)
    oldest = min(snapshots, default=None)
    if oldest is None:
        return
    first = snapshots[oldest]
    inherited = session.manifest_list(first, first.base_manifest_list)
    if inherited and table.branch == MAIN_BRANCH:
        yield inherited_files(
            table,
            live_entries(session.manifests, inherited),
            partial(partition_path_of, session.schema),
        )
    for number in sorted(snapshots):
        try:
            files = committed_files(session, snapshots[number])
        except NotFoundError:
            continue  # expired while we read: history that can no longer be read
        yield _facts(table, files, expired=number in expired)


def _facts(table: TableName, files: CommittedFiles, *, expired: bool = False) -> CommitFacts:
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
