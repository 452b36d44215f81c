"""LsmTranslator: derives the specs of a table's assets from its declaration."""

from datetime import timedelta

import dagster as dg

from lsm_assets.dagster_core import virtual_spec
from lsm_assets.declaration import TableDeclaration
from lsm_assets.keys import (
    BRANCH_PREFIX,
    ICEBERG,
    READ_OPTIMIZED,
    AssetKind,
    snapshot_partitions,
    tag_partitions,
)
from lsm_assets.metadata import declaration_metadata

_KINDS = {
    AssetKind.TABLE: {"table", "paimon"},
    AssetKind.MANIFEST_LISTS: {"avro"},
    AssetKind.SNAPSHOTS: {"json"},
    AssetKind.TAGS: {"json"},
    AssetKind.COMPACTION: {"paimon"},
}
_EXECUTOR_KINDS = {"spark": "spark", "local": "arrow"}


def executed_by(spec: dg.AssetSpec, executor: str) -> dg.AssetSpec:
    """Return a spec with the executor's kind, if runs of the asset write: tables and compactions."""
    writes = spec.tags.get("lsm/kind") in ("table", AssetKind.COMPACTION.value)
    return spec.merge_attributes(kinds={_EXECUTOR_KINDS[executor]}) if writes else spec


def _longest_partition(definition: dg.TimeWindowPartitionsDefinition) -> timedelta:
    """Return the length of the longest of the first twelve partitions, as months differ."""
    end, longest = definition.start, timedelta()
    for _ in range(12):
        window = definition.get_next_partition_window(end, respect_bounds=False)
        assert window is not None, "only bounds end the windows"
        end, longest = window.end, max(longest, window.end - window.start)
    return longest


class LsmTranslator:
    """Decides how a table appears in Dagster. Subclass it and override methods to change names, tags or dependencies.

    Snapshots, manifest lists, tags and compactions depend on the external asset `files`, not on the table. An external
    asset has no data version, so that a later commit of other files does not make them stale. A compaction changes
    files and no rows, so that it makes no reader stale, unless reads skip level 0: then it makes rows visible.
    """

    def description(self, declaration: TableDeclaration, kind: AssetKind) -> str:
        """Return the description of an asset, as Markdown."""
        name = declaration.name
        texts = {
            AssetKind.TABLE: declaration.comment or f"The table `{name}`.",
            AssetKind.FILES: (
                f"The data files of `{name}`: sorted runs in levels. Every commit records them, "
                "with the levels of the LSM tree."
            ),
            AssetKind.MANIFEST_LISTS: (
                f"The manifest lists of `{name}`, one partition per snapshot. Materialise one to "
                "read it, check every manifest that it names, and merge manifests if the newest "
                "snapshot has many."
            ),
            AssetKind.SNAPSHOTS: (
                f"The snapshots of `{name}`, one partition per live snapshot. Materialise one to "
                "read and check every page of every file that it names, except files that an earlier "
                "run has checked, and to record it in the lineage. A range of partitions is one run."
            ),
            AssetKind.TAGS: (
                f"The tags of `{name}`. Add a partition with the name of the new tag and materialise it: "
                "the tag retains the newest snapshot, or the one in the run's config, once every page of its files "
                "was read. "
                "`action` in the config replaces, extends or deletes a tag."
            ),
            AssetKind.COMPACTION: (
                f"Compactions of `{name}`, which merge sorted runs. "
                + (
                    "Reads skip level 0: a compaction makes rows visible, and readers become stale."
                    if declaration.hides_level_0
                    else "They change no rows, so that no reader becomes stale."
                )
            ),
        }
        return texts[kind]

    def kinds(self, declaration: TableDeclaration, kind: AssetKind) -> set[str]:
        """Return the kinds of an asset, which Dagster shows as icons; `executed_by` adds that of the executor."""
        if kind is AssetKind.FILES:
            return {declaration.options.get("file.format", "parquet").lower()}
        return set(_KINDS[kind])

    def tags(self, declaration: TableDeclaration, kind: AssetKind) -> dict[str, str]:
        """Return the tags of an asset, for selections such as `tag:"lsm/kind"="snapshots"`."""
        return {"lsm/table": declaration.keys.identifier, "lsm/kind": kind.value or "table"}

    def deps(self, declaration: TableDeclaration, kind: AssetKind) -> list[dg.AssetDep]:
        """Return the upstream assets."""
        keys = declaration.keys
        match kind:
            case AssetKind.TABLE:
                return [dg.AssetDep(key) for key in declaration.deps]
            case AssetKind.FILES:
                return [dg.AssetDep(keys.asset(AssetKind.TABLE))]
            case AssetKind.SNAPSHOTS:
                return [dg.AssetDep(keys.asset(AssetKind.MANIFEST_LISTS))]
            case AssetKind.MANIFEST_LISTS | AssetKind.TAGS | AssetKind.COMPACTION:
                return [dg.AssetDep(keys.asset(AssetKind.FILES))]

    def partitions(
        self, declaration: TableDeclaration, kind: AssetKind
    ) -> dg.PartitionsDefinition | None:
        """Return the partitions of an asset; those of the table asset are declared."""
        match kind:
            case AssetKind.TABLE:
                return declaration.partitions_def
            case AssetKind.SNAPSHOTS | AssetKind.MANIFEST_LISTS:
                return snapshot_partitions(declaration.keys)
            case AssetKind.TAGS:
                return tag_partitions(declaration.keys)
            case _:
                return None

    def automation(
        self, declaration: TableDeclaration, kind: AssetKind
    ) -> dg.AutomationCondition | None:
        """Return the automation condition: a compaction runs after the check of sorted runs has failed."""
        if kind is not AssetKind.COMPACTION:
            return None
        files = declaration.keys.asset(AssetKind.FILES)
        too_many = dg.AutomationCondition.asset_matches(
            files, dg.AutomationCondition.any_checks_match(dg.AutomationCondition.check_failed())
        ).with_label("too many sorted runs")
        # The check stays failed until it runs again. Only new files justify another compaction.
        written = (
            dg.AutomationCondition.asset_matches(files, dg.AutomationCondition.newly_updated())
            .since_last_handled()  # type: ignore[misc]  # its own type variable is too narrow
            .with_label("files added since the last compaction")
        )
        return too_many & written & ~dg.AutomationCondition.in_progress()

    def freshness(
        self, declaration: TableDeclaration, kind: AssetKind
    ) -> dg.FreshnessPolicy | None:
        """Return the freshness policy. Only the table asset has one."""
        minutes, definition = declaration.fresh_within_minutes, declaration.partitions_def
        if kind is not AssetKind.TABLE or minutes is None:
            return None
        window = timedelta(minutes=minutes)
        if isinstance(definition, dg.TimeWindowPartitionsDefinition):
            # A day is written after its end: until then the last write may be a whole day older.
            window += _longest_partition(definition)
        return dg.FreshnessPolicy.time_window(fail_window=window)

    def view(self, declaration: TableDeclaration, name: str) -> dg.AssetSpec:
        """Return the spec of a view: a virtual asset, behind which readers are as stale as those of the table."""
        table = declaration.name
        branch = name.removeprefix(BRANCH_PREFIX)
        reads = {
            READ_OPTIMIZED: f"`{table}$ro`: its rows as of compactions, read without merging",
            ICEBERG: f"the Iceberg metadata of `{table}`, by which other engines read its files",
        }.get(name, f"the branch `{branch}` of `{table}`")
        kinds = {"iceberg"} if name == ICEBERG else self.kinds(declaration, AssetKind.TABLE)
        return virtual_spec(
            key=declaration.keys.view(name),
            deps=[declaration.keys.asset(AssetKind.TABLE)],
            description=f"A view: {reads}. It stores nothing.",
            group_name=declaration.group_name,
            owners=list(declaration.owners) or None,
            kinds=kinds | {"view"},
        )

    def spec(self, declaration: TableDeclaration, kind: AssetKind) -> dg.AssetSpec:
        """Return the spec of one of a table's assets."""
        return dg.AssetSpec(
            key=declaration.keys.asset(kind),
            deps=self.deps(declaration, kind),
            description=self.description(declaration, kind),
            metadata=declaration_metadata(declaration) if kind is AssetKind.TABLE else None,
            group_name=declaration.group_name,
            owners=list(declaration.owners) or None,
            tags=self.tags(declaration, kind),
            kinds=self.kinds(declaration, kind),
            partitions_def=self.partitions(declaration, kind),
            automation_condition=self.automation(declaration, kind),
            freshness_policy=self.freshness(declaration, kind),
        )
