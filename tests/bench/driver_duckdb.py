"""Drives DuckDB, with a native table in a file, as one of the contenders of upserts.py."""

import os

import driver_protocol as protocol
import duckdb
import pyarrow as pa
import pyarrow.compute as pc

TYPES = {
    pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.string(): "VARCHAR", pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP", pa.decimal128(18, 2): "DECIMAL(18, 2)",
}  # fmt: skip


class DuckdbDriver:
    """One table in a database file."""

    def do_open(self, folder, rows, options):
        """Create the table for rows like these, with a primary key."""
        os.makedirs(folder)
        self.connection = duckdb.connect(os.path.join(folder, "t.duckdb"))
        schema = protocol.load_table(rows).schema
        columns = ", ".join(
            f"{field.name} {TYPES[field.type]}{' PRIMARY KEY' if field.name == 'k' else ''}"
            for field in schema
        )
        self.connection.execute(f"CREATE TABLE t ({columns})")

    def do_upsert(self, rows):
        """Insert or replace rows, and make them last."""
        given = protocol.load_table(rows)
        self.connection.register("given", given)
        self.connection.execute("INSERT OR REPLACE INTO t SELECT * FROM given")
        self.connection.unregister("given")
        self.connection.execute("CHECKPOINT")

    def do_read(self):
        """Read all of it; how many rows, and the sum of the column that decides who won."""
        rows = self.connection.execute("SELECT * FROM t").to_arrow_table()
        return [rows.num_rows, pc.sum(rows["a"]).as_py()]

    def do_compact(self):
        """It has no such thing."""
        raise protocol.Unsupported("no compaction")

    def do_lookup(self, key):
        """Rows with that key."""
        found = self.connection.execute("SELECT * FROM t WHERE k = ?", [key])
        return found.to_arrow_table().num_rows


if __name__ == "__main__":
    protocol.serve(DuckdbDriver())
