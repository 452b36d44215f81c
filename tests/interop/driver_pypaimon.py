"""Drives the real pypaimon 2.1.0."""

import os

import driver_protocol as protocol
import manifest_columns
import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from pypaimon.schema.data_types import DataField
from pypaimon.table.file_store_table import FileStoreTable

OPERATORS = {
    "=": "equal", "!=": "not_equal", "<": "less_than", "<=": "less_or_equal",
    ">": "greater_than", ">=": "greater_or_equal", "in": "is_in",
}  # fmt: skip


class PypaimonDriver:
    """Operations on tables named by absolute directory."""

    def do_create(self, warehouse, database, name, fields, primary_key, partitioned_by, options):
        """Create a table in a warehouse folder; returns its directory."""
        catalog = CatalogFactory.create({"warehouse": warehouse})
        catalog.create_database(database, True)
        columns = [
            DataField.from_dict({"id": number, "name": column, "type": spelled})
            for number, (column, spelled) in enumerate(fields)
        ]
        schema = Schema(
            fields=columns, partition_keys=partitioned_by, primary_keys=primary_key, options=options
        )
        catalog.create_table(f"{database}.{name}", schema, False)
        return os.path.join(warehouse, database + ".db", name)

    def do_read(self, path, out, snapshot_id, tag, columns, where):
        """Read the table, or a snapshot or tag of it, where a filter holds."""
        table = FileStoreTable.from_path(path)
        options = protocol.scan_options(snapshot_id, tag)
        builder = (table.copy(options) if options else table).new_read_builder()
        if columns is not None:
            builder.with_projection(columns)
        if where is not None:
            builder.with_filter(predicate(builder, where))
        splits = builder.new_scan().plan().splits()
        protocol.save_table(builder.new_read().to_arrow(splits), out)
        files = [file for split in splits for file in split.files]
        return {"files": len(files), "rows": sum(file.row_count for file in files)}

    def do_write(self, path, rows, kinds, overwrite):
        """Write and commit rows; overwrite is a partition spec, {} for the whole table."""
        if kinds is not None:
            raise protocol.Unsupported("row kinds without the table option rowkind.field")
        table = FileStoreTable.from_path(path)
        before = latest_id(table)
        builder = table.new_batch_write_builder()
        if overwrite is not None:
            builder.overwrite(overwrite)
        write, commit = builder.new_write(), builder.new_commit()
        try:
            write.write_arrow(
                in_table_columns(protocol.load_table(rows), write.table_pyarrow_schema)
            )
            commit.commit(write.prepare_commit())
        finally:
            write.close()
            commit.close()
        after = latest_id(table)
        return after if after != before else None

    def do_create_tag(self, path, name, snapshot_id):
        """Tag a snapshot, the newest if none is named."""
        FileStoreTable.from_path(path).create_tag(name, snapshot_id)

    def do_changes(self, path, out, snapshot_id, mode):
        """One snapshot's changelog files or raw new data files."""
        table = FileStoreTable.from_path(path)
        builder = table.new_stream_read_builder().with_include_row_kind()
        scan = builder.new_streaming_scan()
        # Its streams follow the table's own producer; only these two take the caller's choice.
        plan = {"changelog": scan._create_changelog_plan, "delta": scan._create_delta_plan}[mode]
        splits = plan(table.snapshot_manager().get_snapshot_by_id(snapshot_id)).splits()
        rows = builder.new_read().to_arrow(splits)
        kinds = rows.column("_row_kind").to_pylist()
        protocol.save_table(rows.drop_columns(["_row_kind"]), out)
        return kinds

    def do_copy_readable(self, path, target):
        """Copy a table of Java 0.9.0 so that this client can open the copy."""
        manifest_columns.copy_with_column(path, target)

    def do_catalog(self, catalog, what, arguments):
        """One operation on names in a JDBC catalog, ``{"uri", "warehouse"}``."""
        with CatalogFactory.create({"metastore": "jdbc", **catalog}) as opened:
            return getattr(self, "catalog_" + what)(opened, **arguments)

    def catalog_tables(self, catalog):
        """Table names by database."""
        return {name: catalog.list_tables(name) for name in catalog.list_databases()}

    def catalog_create(self, catalog, name, fields, primary_key, options):
        """Create a table, and its database if need be; returns its directory."""
        catalog.create_database(name.split(".")[0], True)
        columns = [
            DataField.from_dict({"id": number, "name": column, "type": spelled})
            for number, (column, spelled) in enumerate(fields)
        ]
        schema = Schema(fields=columns, primary_keys=primary_key, options=options)
        catalog.create_table(name, schema, False)
        return catalog.get_table(name).table_path

    def catalog_read(self, catalog, name, out):
        """Read a table by its name."""
        builder = catalog.get_table(name).new_read_builder()
        splits = builder.new_scan().plan().splits()
        protocol.save_table(builder.new_read().to_arrow(splits), out)

    def catalog_drop(self, catalog, name):
        """Drop a table, files and all."""
        catalog.drop_table(name, False)

    def catalog_rename(self, catalog, old, new):
        """Rename a table."""
        catalog.rename_table(old, new)

    def do_buckets(self, path, rows):
        """The bucket of each row."""
        table = FileStoreTable.from_path(path)
        data = protocol.load_table(rows).combine_chunks()
        extract = table.create_row_key_extractor().extract_partition_bucket_batch
        return [int(bucket) for batch in data.to_batches() for bucket in extract(batch)[1]]

    def do_files(self, path):
        """Live data files, with the members of the fixtures' live_files but the partition's bytes."""
        plan = FileStoreTable.from_path(path).new_read_builder().new_scan().plan()
        return [
            {
                "bucket": split.bucket,
                "level": file.level,
                "file": file.file_name,
                "rows": file.row_count,
                "deleteRows": file.delete_row_count or 0,
                "minSeq": file.min_sequence_number,
                "maxSeq": file.max_sequence_number,
            }
            for split in plan.splits()
            for file in split.files
        ]


def latest_id(table):
    """Id of the newest snapshot, None when there is none."""
    snapshot = table.snapshot_manager().get_latest_snapshot()
    return None if snapshot is None else snapshot.id


def in_table_columns(rows, schema):
    """Rows in the columns, order and types that the table asks for; it takes no others."""
    for name in set(schema.names) - set(rows.column_names):
        rows = rows.append_column(name, pa.nulls(rows.num_rows, schema.field(name).type))
    return rows.select(schema.names).cast(schema)


def predicate(builder, where):
    """A pypaimon predicate from [column, operator, value]."""
    column, operator, value = where
    build = builder.new_predicate_builder()
    python = protocol.decode(value)
    if operator == "between":
        return build.between(column, *python)
    return getattr(build, OPERATORS[operator])(column, python)


if __name__ == "__main__":
    protocol.serve(PypaimonDriver())
