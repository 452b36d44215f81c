"""LsmTranslator: one table's declaration → the specs of its assets. Subclass it to name things your way."""

from datetime import timedelta

import dagster as dg

from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.model.metadata import declared_metadata
from lsm_assets.model.partitions import snapshot_partitions, tag_partitions

_KINDS = {
    AssetKind.TABLE: {"table", "paimon"},
    AssetKind.MANIFEST_LISTS: {"avro"},
    AssetKind.SNAPSHOTS: {"json"},
    AssetKind.TAGS: {"json"},
    AssetKind.COMPACTION: {"paimon"},
}
_EXECUTOR_KINDS = {"spark": "spark", "local": "arrow"}


def executed_by(spec: dg.AssetSpec, executor: str) -> dg.AssetSpec:
    """Return the spec with the kind of what its run works on; that of snapshots reads, and makes nothing."""
    works = spec.tags.get("lsm/kind") in ("table", AssetKind.COMPACTION.value)
    return spec.merge_attributes(kinds={_EXECUTOR_KINDS[executor]}) if works else spec


class LsmTranslator:
    """Every decision about how a table appears in Dagster, one method each.

    The edges are chosen so that nothing is ever shown as out of date without reason: the external
    `files` asset stands between a table and what is made of its files, as external assets are
    always fresh. A compaction changes files and no rows, so it makes no reader stale, unless
    reads leave level 0 out: then it shows them the rows that were written before.
    """

    def description(self, declaration: TableDeclaration, kind: AssetKind) -> str:
        """Markdown for an asset's page."""
        name = declaration.name
        texts = {
            AssetKind.TABLE: declaration.comment or f"The table `{name}`.",
            AssetKind.FILES: (
                f"The data files of `{name}`: sorted runs in levels. Recorded by every commit, "
                "with the shape of the tree."
            ),
            AssetKind.MANIFEST_LISTS: (
                f"The manifest lists of `{name}`, one partition per snapshot. Materialise one to "
                "read it again, check every manifest it names, and compact the newest ones where "
                "they are many."
            ),
            AssetKind.SNAPSHOTS: (
                f"The snapshots of `{name}`, one partition per live snapshot. Materialise one to "
                "read and check every page of every file it names, without those found "
                "sound before, and to record it in the lineage. A range of them is one run."
            ),
            AssetKind.TAGS: (
                f"The tags of `{name}`. Add a partition, named like the tag you want, and "
                "materialise it: the tag pins the newest snapshot, or the one in the run's config. "
                "With `action` in the config a tag is replaced, extended or deleted."
            ),
            AssetKind.COMPACTION: (
                f"Compactions of `{name}`: sorted runs merged. "
                + (
                    "Reads leave level 0 out: a compaction shows them what was written before, "
                    "and readers become stale."
                    if declaration.hides_level_0
                    else "Rows stay what they are, so no reader becomes stale."
                )
            ),
        }
        return texts[kind]

    def kinds(self, declaration: TableDeclaration, kind: AssetKind) -> set[str]:
        """What an asset is, in words that Dagster shows beside it; `executed_by` adds the executor."""
        if kind is AssetKind.FILES:
            return {declaration.options.get("file.format", "parquet").lower()}
        return set(_KINDS[kind])

    def tags(self, declaration: TableDeclaration, kind: AssetKind) -> dict[str, str]:
        """Tags to find assets by: `tag:"lsm/kind"="snapshots"`."""
        return {"lsm/table": declaration.keys.identifier, "lsm/kind": kind.value or "table"}

    def deps(self, declaration: TableDeclaration, kind: AssetKind) -> list[dg.AssetDep]:
        """Upstream assets: what a thing is built from."""
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
        """How an asset is partitioned; the table's own partitions: `TableDeclaration.partition_columns`."""
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
        """When Dagster acts by itself: a compaction when the check on sorted runs has failed."""
        if kind is not AssetKind.COMPACTION:
            return None
        files = declaration.keys.asset(AssetKind.FILES)
        too_many = dg.AutomationCondition.asset_matches(
            files, dg.AutomationCondition.any_checks_match(dg.AutomationCondition.check_failed())
        ).with_label("too many sorted runs")
        written = (
            dg.AutomationCondition.asset_matches(files, dg.AutomationCondition.newly_updated())
            .since_last_handled()  # type: ignore[misc]  # its own type variable is too narrow
            .with_label("files added since the last one")
        )
        return too_many & written & ~dg.AutomationCondition.in_progress()

    def freshness(
        self, declaration: TableDeclaration, kind: AssetKind
    ) -> dg.FreshnessPolicy | None:
        """When an asset is late; what is made of a table's files is as fresh as the table."""
        minutes = declaration.fresh_within_minutes
        if kind is not AssetKind.TABLE or minutes is None:
            return None
        return dg.FreshnessPolicy.time_window(fail_window=timedelta(minutes=minutes))

    def spec(self, declaration: TableDeclaration, kind: AssetKind) -> dg.AssetSpec:
        """Return the spec of one of a table's assets."""
        return dg.AssetSpec(
            key=declaration.keys.asset(kind),
            deps=self.deps(declaration, kind),
            description=self.description(declaration, kind),
            metadata=declared_metadata(declaration) if kind is AssetKind.TABLE else None,
            group_name=declaration.group_name,
            owners=list(declaration.owners) or None,
            tags=self.tags(declaration, kind),
            kinds=self.kinds(declaration, kind),
            partitions_def=self.partitions(declaration, kind),
            automation_condition=self.automation(declaration, kind),
            freshness_policy=self.freshness(declaration, kind),
        )
