"""The data versions of an asset's partitions, and the partitions that commits of any client have changed."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache

import dagster as dg

import lsm_engine as lsm
from lsm_assets.commits import commits_since, data_version, is_rolled_back
from lsm_assets.declaration import (
    FindWriterRun,
    PartitionLayout,
    PartitionTemplates,
    TableDeclaration,
    WriterRun,
    changed_versions,
    to_partial_path,
)
from lsm_assets.keys import AssetKind
from lsm_assets.recording import recorded_version, recorded_versions
from lsm_assets.storage import column_ranges
from lsm_assets.versions import CommitFacts, TableVersion
from lsm_engine import InvalidInputError, Lineage

_CACHED_PARTITIONS_MAX = 200_000
"""Partitions whose directory paths a process caches between ticks of the sync sensor, about 100 MB."""
_layout_cache: dict[Hashable, PartitionLayout] = {}


def partition_layout(
    table: lsm.Table, templates: PartitionTemplates, keys: Iterable[str]
) -> PartitionLayout:
    """Return the directories of an asset's partitions, cached by table, schema, templates and keys.

    Raises InvalidInputError for declared templates whose values a column cannot hold. A guess that does not fit is
    dropped: any directory may then belong to any partition.
    """
    partition_keys, schema = tuple(keys), table.schema
    template_key = (templates.definition, tuple(templates.columns.items()), templates.is_declared)
    cache_key = (table.location, schema.id, schema.time_millis, *template_key, partition_keys)
    layout = _layout_cache.get(cache_key)
    if layout is None:
        layout = _layout_cache[cache_key] = _build_layout(table, templates, partition_keys)
        # `list` copies the values: sensors of several threads may change the cache meanwhile.
        while (
            sum(len(cached.paths) for cached in list(_layout_cache.values()))
            > _CACHED_PARTITIONS_MAX
        ):
            _layout_cache.pop(next(iter(list(_layout_cache))), None)
    return layout


def _build_layout(
    table: lsm.Table, templates: PartitionTemplates, keys: Sequence[str]
) -> PartitionLayout:
    any_path = dict.fromkeys(keys, "")
    if not templates.columns or not keys:
        return PartitionLayout(any_path, is_certain=templates.is_declared)
    columns, schema = table.schema.partition_keys, table.schema.arrow
    values: dict[str, tuple[str, ...]] = {}
    try:
        ranges = column_ranges(templates, keys, schema, columns)
        range_column = ranges.column if ranges is not None else None
        names = [name for name in templates.columns if name in columns and name != range_column]
        if not names:
            return PartitionLayout(any_path, is_certain=templates.is_declared, ranges=ranges)
        path_templates = replace(
            templates, columns={name: templates.columns[name] for name in names}
        )
        values = {key: path_templates.values(key) for key in any_path}
        # Many partitions share a directory, such as the days of a month: each path is formatted once.
        distinct = list(dict.fromkeys(values.values()))
        values_by_column = dict(zip(names, zip(*distinct, strict=True), strict=True))
        nulls = [None] * len(distinct)
        paths = table.partition_paths({name: values_by_column.get(name, nulls) for name in columns})
    except InvalidInputError as error:
        # Only declared templates are an error of the user. A guess is dropped, and any directory may match.
        if templates.is_declared and values:
            raise _template_error(table, templates, error) from error
        if templates.is_declared:
            raise
        return PartitionLayout(any_path)
    positions = [position for position, name in enumerate(columns) if name in values_by_column]
    path_by_values = {
        row: to_partial_path(path, positions) for row, path in zip(distinct, paths, strict=True)
    }
    path_by_key = {key: path_by_values[row] for key, row in values.items()}
    return PartitionLayout(path_by_key, positions, is_certain=templates.is_declared, ranges=ranges)


def _template_error(
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
    """Raise InvalidInputError if columns of a table cannot hold the values that templates give some partitions."""
    if declaration.templates is not None and partitions:
        partition_layout(table, declaration.templates, partitions)


def changed_versions_since(
    instance: dg.DagsterInstance,
    declaration: TableDeclaration,
    table: lsm.Table,
    lineage: Lineage,
    recorded: Mapping[str, TableVersion],
    snapshot_id: int,
) -> dict[str, TableVersion]:
    """Return the asset partitions that commits after a snapshot have changed, each with the last such commit.

    Commits that Dagster has recorded for a partition do not count. An asset without partitions has none.

    Args:
        instance: Dagster instance.
        declaration: Declaration of the table.
        table: The table.
        lineage: Lineage of the catalog, which has the expired commits.
        recorded: Recorded version by partition.
        snapshot_id: The snapshot after which commits count.
    """
    templates, key = declaration.templates, declaration.keys.asset(AssetKind.TABLE)
    if templates is None:
        return {}
    current_keys = _current_keys(templates.definition, instance)
    layout = partition_layout(table, templates, dict.fromkeys([*current_keys, *recorded]))
    later_commits = commits_since(table, lineage, snapshot_id, layout.column)
    commits = _with_unknown_commits(later_commits, snapshot_id)
    return changed_versions(recorded, commits, writer_runs(instance, key), layout)


def empty_partitions(
    instance: dg.DagsterInstance,
    declaration: TableDeclaration,
    table: lsm.Table | None,
    names: Collection[str],
) -> set[str]:
    """Return the partitions among `names` that certainly have no rows in a table. `table` None: it was dropped."""
    newest = table.latest_snapshot() if table is not None else None
    templates = declaration.templates
    if table is None or newest is None or templates is None or not names:
        return set(names)
    current_keys = _current_keys(templates.definition, instance)
    layout = partition_layout(table, templates, dict.fromkeys([*current_keys, *names]))
    live_paths = {bucket.partition: None for bucket in table.tree(newest)}
    return set(names) - layout.partitions_in(live_paths)


def recorded_partitions(
    instance: dg.DagsterInstance, declaration: TableDeclaration
) -> dict[str, TableVersion]:
    """Return the recorded version of each partition that the asset's definition has.

    Dagster keeps events of partitions that a changed definition no longer has. They are left out.
    """
    versions = recorded_versions(instance, declaration.keys.asset(AssetKind.TABLE))
    definition = declaration.partitions_def
    if not versions or definition is None:
        return versions
    return {
        name: versions[name] for name in versions.keys() & set(_current_keys(definition, instance))
    }


def _current_keys(
    definition: dg.PartitionsDefinition, instance: dg.DagsterInstance
) -> Sequence[str]:
    if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return definition.get_partition_keys(dynamic_partitions_store=instance)
    last = definition.get_last_partition_key()
    return () if last is None else _time_keys(definition, last)


@lru_cache(maxsize=32)
def _time_keys(definition: dg.TimeWindowPartitionsDefinition, last: str) -> tuple[str, ...]:
    # Listing the hours of five years takes a quarter of a second: cached until the next partition exists.
    return tuple(definition.get_partition_keys())


def oldest_required_snapshot(
    instance: dg.DagsterInstance,
    declaration: TableDeclaration,
    table: lsm.Table,
    lineage: Lineage,
) -> int | None:
    """Return the oldest live snapshot that a step, run again, would still read; None if it needs none but the newest.

    Dagster has recorded the snapshot as a version of the table or of a partition, and rows have changed since.
    """
    partition_versions = recorded_partitions(instance, declaration)
    table_version = recorded_version(instance, declaration.keys.asset(AssetKind.TABLE))
    required = (
        []
        if table_version is None or table_version.is_same(data_version(table, lineage))
        else [table_version]
    )
    if partition_versions:
        start = min(version.snapshot_id for version in partition_versions.values())
        new_versions = changed_versions_since(
            instance, declaration, table, lineage, partition_versions, start
        )
        required += [
            partition_versions[name] for name in new_versions if name in partition_versions
        ]
    live = set(table.snapshot_ids())
    return min(
        (recorded.snapshot_id for recorded in required if recorded.snapshot_id in live),
        default=None,
    )


def versions_after_run(
    instance: dg.DagsterInstance,
    declaration: TableDeclaration,
    table: lsm.Table,
    lineage: Lineage,
    partitions: Sequence[str],
    newest_before: int,
) -> tuple[TableVersion, dict[str, TableVersion]]:
    """Return the data version of a run, and the versions of its partitions that differ from it.

    The version of a partition is the last commit that changed its rows, as far as one is known: a commit after
    `newest_before` or the recorded one. Other partitions get the version of the table.

    Args:
        instance: Dagster instance.
        declaration: Declaration of the table.
        table: The table.
        lineage: Lineage of the catalog.
        partitions: Partitions of the run.
        newest_before: The newest snapshot id when the run began; 0 if the table was empty.
    """
    version = data_version(table, lineage)
    if not partitions:
        return version, {}
    key = declaration.keys.asset(AssetKind.TABLE)
    known_versions = {
        name: recorded
        for name, recorded in recorded_versions(instance, key, partitions).items()
        if not is_rolled_back(table, lineage, recorded)
    }
    start = min([newest_before, *(recorded.snapshot_id for recorded in known_versions.values())])
    known_versions |= changed_versions_since(
        instance, declaration, table, lineage, known_versions, start
    )
    partition_versions = [known_versions.get(name, version) for name in partitions]
    # The usual case: all partitions changed together, and Dagster's own event gives each the same version.
    if len(set(partition_versions)) == 1:
        return partition_versions[0], {}
    version_by_key = zip(partitions, partition_versions, strict=True)
    return version, {name: own for name, own in version_by_key if not own.is_same(version)}


def writer_runs(instance: dg.DagsterInstance, key: dg.AssetKey) -> FindWriterRun:
    """Return a function that finds the run of a table's asset that made a commit. Each run is read once."""

    @cache
    def find_writer_run(run_id: str) -> WriterRun | None:
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

    return lambda commit: find_writer_run(commit.dagster_run_id) if commit.dagster_run_id else None


def _with_unknown_commits(commits: Iterable[CommitFacts], after: int) -> Iterator[CommitFacts]:
    """Yield commits, and before a gap of snapshot ids a commit that may have changed any partition."""
    # The lineage may lack expired commits of other clients. They must not hide a change from readers.
    expected = after + 1
    for commit in commits:
        number = commit.version.snapshot_id
        if number > expected:
            yield CommitFacts(version=commit.version, partitions=None)
        yield commit
        expected = number + 1
