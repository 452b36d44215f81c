"""Drives one engine on an S3 server for store_rounds.py: create, upsert, plan and scan, each opening the table anew.

The variable BENCH_ENGINE has its name. Each process measures one call, so that nothing is known from an earlier one.
"""

import importlib
import os

import driver_protocol as protocol
import pyarrow as pa

ROWS = 10  # of an upsert


def rows(number):
    """Ten rows, half of which replace older ones."""
    keys = range(number * ROWS // 2, number * ROWS // 2 + ROWS)
    return pa.table({"k": pa.array(keys, pa.int64()), "a": pa.array([number] * ROWS, pa.int64())})


class StoreDriver:
    """One table; `where` has endpoint, bucket, path, key, secret and a folder of this machine."""

    def do_ready(self):
        """Import the engine, which is not what is measured."""
        importlib.import_module(self.module)

    def do_create(self, where):
        """Make an empty table."""
        self.create(where)

    def do_upsert(self, where, first, count):
        """Upsert so often, opening the table each time."""
        for number in range(first, first + count):
            self.upsert(where, rows(number))

    def do_plan(self, where):
        """How many files a scan reads."""
        return self.plan(where)

    def do_scan(self, where):
        """How many rows there are."""
        return self.scan(where)


def aws(where):
    """Options under the names that Rust's object_store takes."""
    return {
        "aws_endpoint": where["endpoint"], "aws_region": "us-east-1", "aws_allow_http": "true",
        "aws_access_key_id": where["key"], "aws_secret_access_key": where["secret"],
        "aws_virtual_hosted_style_request": "false",
    }  # fmt: skip


def location(where):
    """The table's address."""
    return f"s3://{where['bucket']}/{where['path']}"


class Ours(StoreDriver):
    """This engine."""

    module = "lsm_engine.api.table"

    def storage(self, where):
        """Storage options."""
        names = {"s3.endpoint": "endpoint", "s3.access-key": "key", "s3.secret-key": "secret"}
        return {name: where[field] for name, field in names.items()}

    def opened(self, where):
        """The table, opened."""
        import lsm_engine

        path = location(where) + "/bench.db/t"
        return lsm_engine.open_table(path, storage=self.storage(where))

    def create(self, where):
        import lsm_engine

        with lsm_engine.open_catalog(
            f"sqlite:///{where['folder']}/ours.db",
            warehouse=location(where),
            storage=self.storage(where),
        ) as catalog:
            schema, options = rows(0).schema, {"bucket": "1"}
            catalog.create_table("bench.t", schema, primary_key=["k"], options=options)

    def upsert(self, where, given):
        self.opened(where).upsert(given)

    def plan(self, where):
        return sum(len(split.files) for split in self.opened(where).scan().splits())

    def scan(self, where):
        return self.opened(where).to_arrow().num_rows


class Lance(StoreDriver):
    """Lance."""

    module = "lance"

    def opened(self, where):
        """The data set, opened."""
        import lance

        return lance.dataset(location(where), storage_options=aws(where))

    def create(self, where):
        import lance

        lance.write_dataset(rows(0).slice(0, 0), location(where), storage_options=aws(where))

    def upsert(self, where, given):
        merge = self.opened(where).merge_insert("k").when_matched_update_all()
        merge.when_not_matched_insert_all().execute(given)

    def plan(self, where):
        return len(self.opened(where).get_fragments())

    def scan(self, where):
        return self.opened(where).to_table().num_rows


class Delta(StoreDriver):
    """delta-rs."""

    module = "deltalake"

    def options(self, where):
        """Its options; commits are conditional PUTs, as ours are."""
        return {**aws(where), "aws_conditional_put": "etag"}

    def opened(self, where):
        """The table, opened."""
        from deltalake import DeltaTable

        return DeltaTable(location(where), storage_options=self.options(where))

    def create(self, where):
        from deltalake import write_deltalake

        given = rows(0).slice(0, 0)
        write_deltalake(location(where), given, storage_options=self.options(where))

    def upsert(self, where, given):
        merge = self.opened(where).merge(
            given, predicate="t.k = s.k", source_alias="s", target_alias="t"
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def plan(self, where):
        return len(self.opened(where).file_uris())

    def scan(self, where):
        return self.opened(where).to_pyarrow_table().num_rows


class Iceberg(StoreDriver):
    """pyiceberg with a catalog in SQLite."""

    module = "pyiceberg.catalog.sql"

    def catalog(self, where):
        """Its catalog, opened."""
        from pyiceberg.catalog.sql import SqlCatalog

        return SqlCatalog("bench", **{
            "uri": f"sqlite:///{where['folder']}/iceberg.db", "warehouse": location(where),
            "s3.endpoint": where["endpoint"], "s3.region": "us-east-1",
            "s3.access-key-id": where["key"], "s3.secret-access-key": where["secret"],
        })  # fmt: skip

    def opened(self, where):
        """The table, opened."""
        return self.catalog(where).load_table("bench.t")

    def create(self, where):
        catalog = self.catalog(where)
        catalog.create_namespace("bench")
        catalog.create_table("bench.t", rows(0).schema)

    def upsert(self, where, given):
        self.opened(where).upsert(given, join_cols=["k"])

    def plan(self, where):
        return len(list(self.opened(where).scan().plan_files()))

    def scan(self, where):
        return self.opened(where).scan().to_arrow().num_rows


class Pypaimon(StoreDriver):
    """pypaimon."""

    module = "pypaimon"

    def catalog(self, where):
        """Its catalog, opened."""
        from pypaimon import CatalogFactory

        return CatalogFactory.create({
            "warehouse": location(where), "fs.s3.endpoint": where["endpoint"],
            "fs.s3.accessKeyId": where["key"], "fs.s3.accessKeySecret": where["secret"],
            "fs.s3.region": "us-east-1",
        })  # fmt: skip

    def opened(self, where):
        """The table, opened."""
        return self.catalog(where).get_table("bench.t")

    def create(self, where):
        from pypaimon import Schema

        catalog = self.catalog(where)
        catalog.create_database("bench", True)
        schema = Schema.from_pyarrow_schema(
            rows(0).schema, primary_keys=["k"], options={"bucket": "1"}
        )
        catalog.create_table("bench.t", schema, False)

    def upsert(self, where, given):
        builder = self.opened(where).new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        write.write_arrow(given.cast(write.table_pyarrow_schema))
        commit.commit(write.prepare_commit())
        write.close()
        commit.close()

    def plan(self, where):
        builder = self.opened(where).new_read_builder()
        return sum(len(split.files) for split in builder.new_scan().plan().splits())

    def scan(self, where):
        builder = self.opened(where).new_read_builder()
        splits = builder.new_scan().plan().splits()
        return builder.new_read().to_arrow(splits).num_rows


ENGINES = {
    "ours": Ours, "lance": Lance, "deltalake": Delta, "pyiceberg": Iceberg, "pypaimon": Pypaimon,
}  # fmt: skip

if __name__ == "__main__":
    protocol.serve(ENGINES[os.environ["BENCH_ENGINE"]]())
