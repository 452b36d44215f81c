"""Tags: one partition per name; materialising it makes the tag, or reads one that is there."""

from typing import Any

import dagster as dg
from pydantic import Field

import lsm_engine as lsm
from lsm_assets.ledger.insides import calendar_of
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.model.metadata import tag_metadata
from lsm_assets.model.partitions import partition_set_name, tag_partitions
from lsm_engine import Tag


class TagConfig(dg.Config):
    """What the tag pins, and for how long."""

    snapshot_id: int | None = Field(default=None, description="Snapshot to pin; default the newest")
    retained: str | None = Field(
        default=None, description="Lifetime such as '30 d'; default for ever"
    )


def create_tag(
    context: dg.AssetExecutionContext, declaration: TableDeclaration, config: TagConfig
) -> dg.MaterializeResult[Any]:
    """Create the tag that the partition is named after; one that exists is reported as it is."""
    table: lsm.Table | None = context.resources.lsm.existing_table(declaration.name)
    if table is None or table.latest_snapshot() is None:
        raise dg.Failure(
            f"{declaration.name} has no snapshot to tag yet: materialise it first",
            allow_retries=False,
        )
    name = context.partition_key
    # A run may name a partition that nobody has added: it would fail after the tag was made.
    tags = partition_set_name(tag_partitions(declaration.keys))
    context.instance.add_dynamic_partitions(tags, [name])
    tag = find_tag(table, name)
    if tag is None:
        table.create_tag(name, config.snapshot_id, retained=config.retained)
        tag = find_tag(table, name)
        assert tag is not None, "a tag that was just made is there"
        context.log.info(
            "tagged table=%s tag=%s snapshot=%s", declaration.name, name, tag.snapshot.id
        )
    elif config.snapshot_id not in (None, tag.snapshot.id):
        raise dg.Failure(
            f"tag {name!r} of {declaration.name} pins snapshot {tag.snapshot.id}, not "
            f"{config.snapshot_id}: delete it first, or choose another name",
            allow_retries=False,
        )
    return dg.MaterializeResult(
        asset_key=declaration.keys.asset(AssetKind.TAGS),
        metadata=tag_metadata(declaration.keys, tag, run_id=context.run.run_id)
        | calendar_of(table, declaration.keys),
        data_version=dg.DataVersion(str(tag.snapshot.id)),
    )


def find_tag(table: lsm.Table, name: str) -> Tag | None:
    """Return a tag by name, None if there is none."""
    return next((tag for tag in table.tags() if tag.name == name), None)
