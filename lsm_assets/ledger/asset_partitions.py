"""The data versions of an asset's partitions: which of them commits have changed, whoever made them."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache

import dagster as dg

import lsm_engine as lsm
from lsm_assets.ledger.commits import commits_since, data_version, is_taken_back
from lsm_assets.ledger.recording import recorded_version, recorded_versions
from lsm_assets.model.asset_partitions import (
    FindWriterRun,
    PartitionLayout,
    PartitionTemplates,
    WriterRun,
    moved_partitions,
    to_partial_path,
)
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.model.pinned_inputs import CommitFacts
from lsm_assets.model.storage import column_ranges
from lsm_assets.model.versions import TableVersion
from lsm_engine import InvalidInputError, Lineage

_REMEMBERED_MAX = 200_000
"""Partitions whose directories a process remembers from tick to tick: some 100 MB."""
_remembered: dict[Hashable, PartitionLayout] = {}


def layout_of(
    table: lsm.Table, templates: PartitionTemplates, keys: Iterable[str]
) -> PartitionLayout:
    """Return where a table keeps the partitions of its asset, as it was worked out last where nothing differs.

    Raises InvalidInputError for given templates whose values no partition column can hold; a guess that
    does not fit is dropped, so that any directory may belong to any partition.
    """
    wanted, schema = tuple(keys), table.schema
    spelled = (templates.definition, tuple(templates.columns.items()), templates.is_declared)
    known = (table.location, schema.id, schema.time_millis, *spelled, wanted)
    found = _remembered.get(known)
    if found is None:
        found = _remembered[known] = _layout(table, templates, wanted)
        while sum(len(each.paths) for each in list(_remembered.values())) > _REMEMBERED_MAX:
            _remembered.pop(next(iter(list(_remembered))), None)
    return found


def _layout(
    table: lsm.Table, templates: PartitionTemplates, keys: Sequence[str]
) -> PartitionLayout:
    nothing = dict.fromkeys(keys, "")
    if not templates.columns or not keys:
        return PartitionLayout(nothing, is_certain=templates.is_declared)
    columns, schema = table.schema.partition_keys, table.schema.arrow
    values: dict[str, tuple[str, ...]] = {}
    try:
        spans = column_ranges(templates, keys, schema, columns)
        spanned = spans.column if spans is not None else None
        names = [name for name in templates.columns if name in columns and name != spanned]
        if not names:
            return PartitionLayout(nothing, is_certain=templates.is_declared, ranges=spans)
        told = replace(templates, columns={name: templates.columns[name] for name in names})
        values = {key: told.values(key) for key in nothing}
        distinct = list(dict.fromkeys(values.values()))
        named = dict(zip(names, zip(*distinct, strict=True), strict=True))
        unnamed = [None] * len(distinct)
        paths = table.partition_paths({name: named.get(name, unnamed) for name in columns})
    except InvalidInputError as error:
        if templates.is_declared and values:
            raise _does_not_hold(table, templates, error) from error
        if templates.is_declared:
            raise
        return PartitionLayout(nothing)
    places = [place for place, name in enumerate(columns) if name in named]
    of = {row: to_partial_path(path, places) for row, path in zip(distinct, paths, strict=True)}
    found = {key: of[row] for key, row in values.items()}
    return PartitionLayout(found, places, is_certain=templates.is_declared, ranges=spans)


def _does_not_hold(
    table: lsm.Table, templates: PartitionTemplates, error: InvalidInputError
) -> InvalidInputError:
    by_time = isinstance(templates.definition, dg.TimeWindowPartitionsDefinition)
    remedy = ", such as {key:%Y-%m-%d %H:%M:%S}" if by_time else ""
    return InvalidInputError(
        f"partition columns of the table cannot hold what templates spell: {error.message}; write templates "
        f"that spell values of the columns' types{remedy}",
        kind=error.kind,
        table=table.name,
        templates=dict(templates.columns),
    )


def require_layout(
    declaration: TableDeclaration, table: lsm.Table, partitions: Sequence[str]
) -> None:
    """Raise InvalidInputError where columns of a table cannot hold what templates spell of some partitions."""
    if declaration.templates is not None and partitions:
        layout_of(table, declaration.templates, partitions)


def moved_since(
    instance: dg.DagsterInstance,
    declaration: TableDeclaration,
    table: lsm.Table,
    lineage: Lineage,
    recorded: Mapping[str, TableVersion],
    snapshot_id: int,
) -> dict[str, TableVersion]:
    """Return the asset partitions that commits after a snapshot have changed, and the last that did.

    Only those that Dagster has not recorded; none of an asset without partitions. `recorded`: what it
    has recorded of each partition.
    """
    templates, key = declaration.templates, declaration.keys.asset(AssetKind.TABLE)
    if templates is None:
        return {}
    everything = _keys_now(templates.definition, instance)
    layout = layout_of(table, templates, dict.fromkeys([*everything, *recorded]))
    since = commits_since(table, lineage, snapshot_id, layout.column)
    commits = _without_gaps(since, snapshot_id)
    return moved_partitions(recorded, commits, writers(instance, key), layout)


def recorded_partitions(
    instance: dg.DagsterInstance, declaration: TableDeclaration
) -> dict[str, TableVersion]:
    """Return what Dagster has recorded of each partition that the asset has now.

    Of a definition that has changed nobody shows partitions that it does not have any more.
    """
    known = recorded_versions(instance, declaration.keys.asset(AssetKind.TABLE))
    definition = declaration.partitions_def
    if not known or definition is None:
        return known
    return {name: known[name] for name in known.keys() & set(_keys_now(definition, instance))}


def _keys_now(definition: dg.PartitionsDefinition, instance: dg.DagsterInstance) -> Sequence[str]:
    if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return definition.get_partition_keys(dynamic_partitions_store=instance)
    last = definition.get_last_partition_key()
    return () if last is None else _keys_until(definition, last)


@lru_cache(maxsize=32)
def _keys_until(definition: dg.TimeWindowPartitionsDefinition, last: str) -> tuple[str, ...]:
    # Listing those of five years of hours takes a quarter of a second.
    return tuple(definition.get_partition_keys())


def oldest_needed(
    instance: dg.DagsterInstance,
    declaration: TableDeclaration,
    table: lsm.Table,
    lineage: Lineage,
) -> int | None:
    """Return the oldest snapshot that is recorded and for which no newer one stands; None: there is none.

    Readers that are run again ask for it: their rows have changed since, and Dagster has not heard of it.
    """
    known = recorded_partitions(instance, declaration)
    whole = recorded_version(instance, declaration.keys.asset(AssetKind.TABLE))
    needed = [] if whole is None or whole.is_same(data_version(table, lineage)) else [whole]
    if known:
        start = min(version.snapshot_id for version in known.values())
        moved = moved_since(instance, declaration, table, lineage, known, start)
        needed += [known[name] for name in moved if name in known]
    live = set(table.snapshot_ids())
    return min((each.snapshot_id for each in needed if each.snapshot_id in live), default=None)


def versions_after(
    instance: dg.DagsterInstance,
    declaration: TableDeclaration,
    table: lsm.Table,
    lineage: Lineage,
    partitions: Sequence[str],
    newest_before: int,
) -> tuple[TableVersion, dict[str, TableVersion]]:
    """Return the data version of a run, and of those of its partitions that have another.

    A partition has that of the last commit that changed its own rows: one after `newest_before`, the
    snapshot that the run began with, or what is recorded of it. Nobody knows more of others: they have
    the run's, which is that of all where they have one, else the table's.
    """
    version = data_version(table, lineage)
    if not partitions:
        return version, {}
    key = declaration.keys.asset(AssetKind.TABLE)
    known = {
        name: recorded
        for name, recorded in recorded_versions(instance, key, partitions).items()
        if not is_taken_back(table, lineage, recorded)
    }
    start = min([newest_before, *(recorded.snapshot_id for recorded in known.values())])
    known |= moved_since(instance, declaration, table, lineage, known, start)
    found = [known.get(name, version) for name in partitions]
    if len(set(found)) == 1:
        return found[0], {}
    others = zip(partitions, found, strict=True)
    return version, {name: own for name, own in others if not own.is_same(version)}


def writers(instance: dg.DagsterInstance, key: dg.AssetKey) -> FindWriterRun:
    """Return what finds the run of a table's asset that made a commit, each run looked at once."""

    @cache
    def of_run(run_id: str) -> WriterRun | None:
        run = instance.get_run_by_id(run_id)
        if run is None:
            return None
        planned = instance.all_logs(
            run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED
        )
        events = [entry.dagster_event for entry in planned if entry.dagster_event is not None]
        partitions: set[str] = set()
        for event in events:
            data = event.asset_materialization_planned_data
            if data.asset_key == key and data.partitions_subset is not None:
                partitions.update(data.partitions_subset.get_partition_keys())
            elif data.asset_key == key and data.partition is not None:
                partitions.add(data.partition)
        if not partitions:
            return None
        return WriterRun(partitions=frozenset(partitions), has_recorded=run.is_success)

    return lambda commit: of_run(commit.dagster_run_id) if commit.dagster_run_id else None


def _without_gaps(commits: Iterable[CommitFacts], after: int) -> Iterator[CommitFacts]:
    """Yield commits; for those that nothing is known of, one that may have changed anything."""
    expected = after + 1
    for commit in commits:
        number = commit.version.snapshot_id
        if number > expected:
            yield CommitFacts(version=commit.version, partitions=None)
        yield commit
        expected = number + 1
