"""Drives the real pypaimon-rust 0.4.0."""

import contextlib
import json
import os
import tempfile

import driver_protocol as protocol
import pyarrow as pa
from pypaimon_rust.datafusion import SQLContext, Table

METHODS = {
    "=": "equal", "!=": "notEqual", "<": "lessThan", "<=": "lessOrEqual",
    ">": "greaterThan", ">=": "greaterOrEqual", "in": "in", "between": "between",
}  # fmt: skip


class RustDriver:
    """Operations on tables named by absolute directory."""

    def do_create(self, warehouse, database, name, fields, primary_key, partitioned_by, options):
        """Create a table in a warehouse folder; returns its directory."""
        os.makedirs(warehouse, exist_ok=True)
        context = SQLContext()
        context.register_catalog("paimon", {"warehouse": warehouse})
        context.sql(f"CREATE SCHEMA IF NOT EXISTS paimon.{database}")
        columns = [f"{column} {sql_type(spelled)}" for column, spelled in fields]
        if primary_key:
            columns.append(f"PRIMARY KEY ({', '.join(primary_key)})")
        partitions = f" PARTITIONED BY ({', '.join(partitioned_by)})" if partitioned_by else ""
        settings = ", ".join(f"'{key}'='{value}'" for key, value in options.items())
        given = f" WITH ({settings})" if settings else ""
        context.sql(
            f"CREATE TABLE paimon.{database}.{name} ({', '.join(columns)}){partitions}{given}"
        )
        return os.path.join(warehouse, database + ".db", name)

    def do_read(self, path, out, snapshot_id, tag, columns, where):
        """Read the table, or a snapshot or tag of it, where a filter holds."""
        builder = open_table(path).new_read_builder(protocol.scan_options(snapshot_id, tag))
        if columns is not None:
            builder.with_projection(columns)
        if where is not None:
            builder.with_filter(predicate(where))
        splits = builder.new_scan().plan().splits()
        protocol.save_table(self.as_table(path, builder.new_read().read(splits), columns), out)
        # This client tells no number of files.
        return {"files": None, "rows": sum(split.row_count() for split in splits)}

    def as_table(self, path, batches, columns):
        """Batches as one table; of no batches, an empty one with untyped columns: none were told."""
        if batches:
            return pa.Table.from_batches(batches)
        names = columns or [
            field["name"] for field in json.loads(protocol.latest_schema(path))["fields"]
        ]
        return pa.schema([pa.field(name, pa.null()) for name in names]).empty_table()

    def do_write(self, path, rows, kinds, overwrite):
        """Write and commit rows; overwrite is a partition spec, {} for the whole table."""
        if kinds is not None:
            raise protocol.Unsupported("row kinds without the table option rowkind.field")
        table = open_table(path)
        before = latest_id(table)
        builder = table.new_batch_write_builder()
        if overwrite is not None:
            builder.with_overwrite(overwrite)
        write = builder.new_write()
        try:
            for batch in protocol.load_table(rows).combine_chunks().to_batches():
                write.write_arrow(batch)
            builder.new_commit().commit(write.prepare_commit())
        finally:
            write.close()
        after = latest_id(table)
        return after if after != before else None

    def do_create_tag(self, path, name, snapshot_id):
        """Tag a snapshot, the newest if none is named."""
        number = latest_id(open_table(path)) if snapshot_id is None else snapshot_id
        with mounted(path) as (context, _):
            context.sql(
                f"CALL sys.create_tag(table => 'db.t', tag => '{name}', snapshot_id => {number})"
            )

    def do_changes(self, path, out, snapshot_id, mode):
        """One snapshot's changelog files or raw new data files."""
        builder = open_table(path).new_read_builder()
        builder.with_include_row_kind(True)
        plan = builder.new_incremental_scan(snapshot_id - 1, snapshot_id, mode).plan()
        batches = builder.new_read().read(plan.splits())
        if not batches:
            protocol.save_table(self.as_table(path, [], None), out)
            return []
        rows = pa.Table.from_batches(batches)
        kinds = rows.column(0).to_pylist()
        protocol.save_table(rows.remove_column(0), out)
        return kinds

    def do_files(self, path):
        """Live data files, with the members of the fixtures' live_files but the partition's bytes."""
        with mounted(path) as (context, name):
            found = [
                row
                for batch in context.sql(f"SELECT * FROM {name}$files")
                for row in batch.to_pylist()
            ]
        return [
            {
                "bucket": row["bucket"],
                "level": row["level"],
                "file": os.path.basename(row["file_path"]),
                "rows": row["record_count"],
                "deleteRows": row["delete_row_count"] or 0,
                "minSeq": row["min_sequence_number"],
                "maxSeq": row["max_sequence_number"],
            }
            for row in found
        ]


def open_table(path):
    """The table of that directory, opened without a catalog."""
    return Table.from_resolved_schema(path, protocol.latest_schema(path))


@contextlib.contextmanager
def mounted(path):
    """SQL on a table directory: a warehouse of one link, since SQL knows tables only by name."""
    with tempfile.TemporaryDirectory(prefix="interop-rust-") as warehouse:
        os.mkdir(os.path.join(warehouse, "db.db"))
        os.symlink(path, os.path.join(warehouse, "db.db", "t"))
        context = SQLContext()
        context.register_catalog("paimon", {"warehouse": warehouse}, "db")
        context.set_current_catalog("paimon")
        yield context, "paimon.db.t"


def latest_id(table):
    """Id of the newest snapshot, None when there is none."""
    snapshot = table.latest_snapshot()
    return None if snapshot is None else snapshot.id()


def sql_type(spelled):
    """A type of a schema file in this client's SQL, which knows NOT NULL at the top only."""
    if isinstance(spelled, str):
        return spelled.replace("WITH LOCAL TIME ZONE", "WITH TIME ZONE")
    kind, _, null = spelled["type"].partition(" ")
    if kind == "ARRAY":
        made = f"ARRAY<{nested_type(spelled['element'])}>"
    elif kind == "MAP":
        made = f"MAP({nested_type(spelled['key'])}, {nested_type(spelled['value'])})"
    else:
        made = f"STRUCT<{', '.join(f['name'] + ' ' + nested_type(f['type']) for f in spelled['fields'])}>"
    return f"{made} {null}".strip()


def nested_type(spelled):
    """A type inside another one, always nullable."""
    return sql_type(spelled).removesuffix(" NOT NULL")


def predicate(where):
    """This client's predicate from [column, operator, value]."""
    column, operator, value = where
    python = protocol.decode(value)
    literals = python if operator in ("in", "between") else [python]
    return {"method": METHODS[operator], "field": column, "literals": literals}


if __name__ == "__main__":
    protocol.serve(RustDriver())
