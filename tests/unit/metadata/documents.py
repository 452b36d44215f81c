"""Snapshots, schemas and tags for tests of stores."""

from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.options.modes import CommitKind
from lsm_engine.options.table_options import given_options
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.types import parse_field


def snapshot(id_, **changes):
    members = {
        "id": id_, "schema_id": 0, "base_manifest_list": f"manifest-list-u-{2 * id_}",
        "delta_manifest_list": f"manifest-list-u-{2 * id_ + 1}", "commit_user": "tester",
        "commit_identifier": id_, "commit_kind": CommitKind.APPEND, "time_millis": 1000 * id_,
        "total_record_count": id_, "delta_record_count": 1, "uuid": f"uuid-{id_}",
    }  # fmt: skip
    return Snapshot(**(members | changes))


def schema(id_, **changes):
    members = {
        "id": id_, "fields": (parse_field({"id": 0, "name": "k", "type": "INT NOT NULL"}),),
        "highest_field_id": 0, "partition_keys": (), "primary_keys": ("k",),
        "options": given_options({"bucket": "1"}), "time_millis": 5,
    }  # fmt: skip
    return TableSchema(**(members | changes))


def tag(name, id_=1, **changes):
    return Tag(name=name, snapshot=snapshot(id_), **changes)
