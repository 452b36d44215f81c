"""Short histories of tables, as facts: what a table floor would have read from files."""

from dataclasses import dataclass, field

from sqlalchemy import select

from lsm_engine.catalog.lineage.facts import ManifestListFacts, TagFacts, commit_facts
from lsm_engine.catalog.models import METADATA, TABLES
from lsm_engine.catalog.names import TableName
from lsm_engine.catalog.provenance import Run, provenance_properties
from lsm_engine.format.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta
from lsm_engine.format.manifest import ManifestEntry, ManifestFileMeta
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.options.modes import CommitKind, EntryKind, FileSource

ORDERS = TableName(database="shop", table="orders")
TOTALS = TableName(database="shop", table="totals")
MILLIS = 1_357_000_000_000


def data_file(name, *, level=0, keys=(0, 9), rows=10, size=1000):
    return DataFileMeta(
        file_name=name,
        file_size=size,
        row_count=rows,
        min_key=keys[0].to_bytes(4, "big"),
        max_key=keys[1].to_bytes(4, "big"),
        key_stats=EMPTY_STATS,
        value_stats=EMPTY_STATS,
        min_sequence_number=0,
        max_sequence_number=rows,
        schema_id=0,
        level=level,
        creation_millis=MILLIS,
        delete_row_count=0,
        file_source=FileSource.APPEND if level == 0 else FileSource.COMPACT,
    )


def entry(kind, file, *, bucket=0, partition=EMPTY_ROW):
    return ManifestEntry(kind=kind, partition=partition, bucket=bucket, total_buckets=2, file=file)


def add(file, **where):
    return entry(EntryKind.ADD, file, **where)


def drop(file, **where):
    return entry(EntryKind.DELETE, file, **where)


def manifest(name, *, added=1, deleted=0):
    return ManifestFileMeta(
        file_name=name,
        file_size=500,
        added_file_count=added,
        deleted_file_count=deleted,
        partition_stats=EMPTY_STATS,
        schema_id=0,
        min_bucket=0,
        max_bucket=1,
        min_level=0,
        max_level=5,
    )


def key_order(key):
    return key


@dataclass
class Story:
    """A table's history, told snapshot by snapshot."""

    table: TableName = ORDERS
    prefix: str = ""
    facts: list = field(default_factory=list)
    manifests: list = field(default_factory=list)

    def commit(
        self,
        *entries,
        kind=CommitKind.APPEND,
        run=None,
        inputs=(),
        changelog=(),
        millis=None,
        **options,
    ):
        number = len(self.facts) + 1
        return self.commit_as(
            number, *entries, kind=kind, run=run, inputs=inputs, changelog=changelog,
            millis=millis, **options,
        )  # fmt: skip

    def commit_as(
        self, number, *entries, kind=CommitKind.APPEND, run=None, inputs=(), changelog=(),
        millis=None, **options,
    ):  # fmt: skip
        prefix = f"{self.prefix}{self.table.table}-{number}"
        delta = manifest(f"manifest-{prefix}", added=len(entries))
        lists = [
            ManifestListFacts(
                kind="base",
                file_name=f"base-{prefix}",
                file_size=9,
                manifests=tuple(self.manifests),
            ),
            ManifestListFacts(
                kind="delta", file_name=f"delta-{prefix}", file_size=9, manifests=(delta,)
            ),
        ]
        self.manifests.append(delta)
        snapshot = Snapshot(
            id=number,
            schema_id=0,
            base_manifest_list=f"base-{prefix}",
            delta_manifest_list=f"delta-{prefix}",
            commit_user="writer",
            commit_identifier=number,
            commit_kind=kind,
            time_millis=MILLIS + number * 1000 if millis is None else millis,
            total_record_count=10 * number,
            delta_record_count=10,
            properties=None if run is None else provenance_properties(run, inputs),
        )
        told = commit_facts(
            self.table,
            snapshot,
            manifest_lists=lists,
            entries=entries,
            changelog_entries=changelog,
            partition_text=lambda partition: "" if partition == EMPTY_ROW else partition.decode(),
            key_order=key_order,
            **options,
        )
        self.facts.append(told)
        return told

    def tag(self, name, number, **options):
        snapshot = next(fact.snapshot for fact in self.facts if fact.snapshot.id == number)
        return TagFacts(table=self.table, tag=Tag(name=name, snapshot=snapshot, **options))


def upsert_and_compact(table=ORDERS):
    """Three upserts, a compaction of two files in bucket 0, an upgrade in bucket 1."""
    story = Story(table=table)
    first, second = data_file("f1", keys=(0, 50)), data_file("f2", keys=(40, 99))
    lone = data_file("f3", keys=(0, 9))
    run = Run(run_id="r1", engine="local", kind="upsert", asset_key="shop/orders", user="ada")
    story.commit(add(first), add(lone, bucket=1), run=run)
    story.commit(add(second), run=run)
    low = data_file("c1", level=5, keys=(0, 45), rows=9)
    high = data_file("c2", level=5, keys=(46, 99), rows=8)
    story.commit(
        drop(first),
        drop(second),
        drop(lone, bucket=1),
        add(low),
        add(high),
        add(lone.upgrade(5), bucket=1),
        kind=CommitKind.COMPACT,
        run=Run(run_id="r2", engine="local", kind="compact"),
    )
    story.commit(add(data_file("f4")), run=run)
    return story


def dump(database, *, without=()):
    """All lineage rows, table numbers replaced by names, sorted."""

    def work(connection):
        names = {
            row.table_id: f"{row.database_name}.{row.table_name}@{row.branch}"
            for row in connection.execute(select(TABLES))
        }
        rows = {}
        for model in METADATA.sorted_tables:
            if not model.name.startswith("lsm_") or model.name in (TABLES.name, *without):
                continue
            found = [dict(row) for row in connection.execute(select(model)).mappings()]
            for row in found:
                if "table_id" in row:
                    row["table_id"] = names[row["table_id"]]
            rows[model.name] = sorted(found, key=repr)
        return rows

    return database.read(work)
