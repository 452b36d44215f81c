"""The asset of tags, a partition each. Materialising one creates, replaces, extends or deletes the tag."""

from collections.abc import Iterator
from enum import Enum
from typing import Any

import dagster as dg
from pydantic import Field

import lsm_engine as lsm
from lsm_assets.ledger.details import read_calendar_metadata
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.model.metadata import tag_metadata
from lsm_assets.model.partitions import partition_set_name, tag_partitions
from lsm_engine import Tag


class TagAction(Enum):
    """The action of a run on its tag."""

    CREATE = "create"
    REPLACE = "replace"
    EXTEND = "extend"
    DELETE = "delete"


class TagConfig(dg.Config):
    """Action, snapshot and lifetime of a tag."""

    action: TagAction = Field(
        default=TagAction.CREATE,
        description="CREATE it; REPLACE: move it to another snapshot; EXTEND: give it another "
        "lifetime; DELETE it",
    )
    snapshot_id: int | None = Field(
        default=None, description="Snapshot to pin (create, replace); default the newest"
    )
    retained: str | None = Field(
        default=None, description="Lifetime such as '30 d', from now on; default for ever"
    )


def change_tag(
    context: dg.AssetExecutionContext, declaration: TableDeclaration, config: TagConfig
) -> Iterator[dg.MaterializeResult[Any]]:
    """Create, replace, extend or delete the tag of the run's partition.

    Creating an existing tag reports it as it is, so that a retry succeeds. Raises dagster.Failure if the table has no
    snapshot, if a tag to change does not exist, or if a tag to create retains another snapshot than the given one.
    """
    table: lsm.Table | None = context.resources.lsm.existing_table(declaration.name)
    if table is None or table.latest_snapshot() is None:
        raise dg.Failure(
            f"{declaration.name} has no snapshot to tag yet: materialise it first",
            allow_retries=False,
        )
    name, key = context.partition_key, declaration.keys.asset(AssetKind.TAGS)
    # A run may name a partition that was not added. Without it the event would fail after the tag was created.
    tags = partition_set_name(tag_partitions(declaration.keys))
    context.instance.add_dynamic_partitions(tags, [name])
    if config.action is TagAction.DELETE:
        _require_tag(declaration, table, name)
        table.delete_tag(name)
        context.log.info("deleted table=%s tag=%s", declaration.name, name)
        yield dg.MaterializeResult(
            asset_key=key,
            metadata={"lsm/deleted": dg.MetadataValue.dagster_run(context.run.run_id)},
            data_version=dg.DataVersion("deleted"),
        )
        return  # the sensor lsm_sync removes the partition
    tag = _apply_action(declaration, table, name, config)
    context.log.info(
        "%s table=%s tag=%s snapshot=%s",
        config.action.value,
        declaration.name,
        name,
        tag.snapshot.id,
    )
    yield dg.MaterializeResult(
        asset_key=key,
        metadata=tag_metadata(declaration.keys, tag, run_id=context.run.run_id)
        | read_calendar_metadata(table, declaration.keys),
        data_version=dg.DataVersion(str(tag.snapshot.id)),
    )


def _apply_action(
    declaration: TableDeclaration, table: lsm.Table, name: str, config: TagConfig
) -> Tag:
    match config.action:
        case TagAction.REPLACE:
            _require_tag(declaration, table, name)
            return table.replace_tag(name, config.snapshot_id, config.retained)
        case TagAction.EXTEND:
            # The engine sets a lifetime only with a tag's snapshot: replace the tag by itself.
            pinned = _require_tag(declaration, table, name).snapshot.id
            return table.replace_tag(name, pinned, config.retained)
        case _:
            return _create_tag(declaration, table, name, config)


def _create_tag(
    declaration: TableDeclaration, table: lsm.Table, name: str, config: TagConfig
) -> Tag:
    tag = find_tag(table, name)
    if tag is None:
        return table.create_tag(name, config.snapshot_id, retained=config.retained)
    if config.snapshot_id not in (None, tag.snapshot.id):
        raise dg.Failure(
            f"tag {name!r} of {declaration.name} pins snapshot {tag.snapshot.id}, not "
            f"{config.snapshot_id}: run it with the action REPLACE, or choose another name",
            allow_retries=False,
        )
    return tag


def _require_tag(declaration: TableDeclaration, table: lsm.Table, name: str) -> Tag:
    tag = find_tag(table, name)
    if tag is None:
        raise dg.Failure(f"{declaration.name} has no tag {name!r}", allow_retries=False)
    return tag


def find_tag(table: lsm.Table, name: str) -> Tag | None:
    """Return a tag by name; None if it does not exist."""
    return next((tag for tag in table.tags() if tag.name == name), None)
