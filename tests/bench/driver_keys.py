"""Drives one of the engines that keys are looked up in, for lookup_keys.py; KEYS_ENGINE says which."""

import os
import struct
import time

import driver_protocol as protocol
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

BUDGET_SECONDS = 5.0
"""Single keys are asked until this much is spent: some engines take a second for one."""
NUMBERS = struct.Struct("<qqqdddHH")


class Engine:
    """A table with key column id in a folder; `get` and `batch` return how many rows were found."""

    def do_measure(self, keys, batches):
        """Ask for single keys, then for batches of them, once unmeasured and once measured."""
        with protocol.METER.stopped():
            singles = protocol.load_table(keys).column("id").to_pylist()
            many = [protocol.load_table(path) for path in batches]
        asked = self.asked(singles)
        asked = self.asked(singles[: len(asked)])
        self.batch(many[0])
        wall, cpu = [], []
        for one in many:
            began, began_cpu = time.perf_counter(), time.process_time()
            self.batch(one)
            wall.append(time.perf_counter() - began)
            cpu.append(time.process_time() - began_cpu)
        return {"nanos": asked, "batch_wall": wall, "batch_cpu": cpu}

    def asked(self, singles):
        """Nanoseconds of this thread per key."""
        took, until = [], time.perf_counter() + BUDGET_SECONDS
        for key in singles:
            began = time.perf_counter_ns()
            self.get(key)
            took.append(time.perf_counter_ns() - began)
            if time.perf_counter() > until:
                break
        return took

    def do_found(self, keys):
        """How many of the keys are there, asked as a batch; to compare with the others."""
        return self.batch(protocol.load_table(keys))


class Deltalake(Engine):
    """deltalake, through its Arrow data set: files are skipped by their statistics."""

    def do_load(self, folder, rows):
        """Write all rows."""
        import deltalake

        deltalake.write_deltalake(folder, protocol.load_table(rows))
        self.data = deltalake.DeltaTable(folder).to_pyarrow_dataset()

    def get(self, key):
        """One key."""
        return self.data.to_table(filter=ds.field("id") == key).num_rows

    def batch(self, keys):
        """Many keys."""
        return self.data.to_table(filter=ds.field("id").isin(keys.column("id"))).num_rows


class Lance(Engine):
    """lance, with a scalar index on the key."""

    def do_load(self, folder, rows):
        """Write all rows and index them."""
        import lance

        self.data = lance.write_dataset(protocol.load_table(rows), folder)
        self.data.create_scalar_index("id", "BTREE")
        self.data = lance.dataset(folder)

    def get(self, key):
        """One key."""
        return self.data.to_table(filter=f"id = {key}").num_rows

    def batch(self, keys):
        """Many keys."""
        listed = ", ".join(map(str, keys.column("id").to_pylist()))
        return self.data.to_table(filter=f"id IN ({listed})").num_rows


class Duckdb(Engine):
    """DuckDB, a native table with a primary key."""

    def do_load(self, folder, rows):
        """Create the table and its index."""
        import duckdb

        os.makedirs(folder)
        self.connection = duckdb.connect(os.path.join(folder, "t.duckdb"))
        given = protocol.load_table(rows)
        kinds = {pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.string(): "VARCHAR"}
        columns = ", ".join(
            f"{field.name} {kinds[field.type]}{' PRIMARY KEY' if field.name == 'id' else ''}"
            for field in given.schema
        )
        self.connection.execute(f"CREATE TABLE t ({columns})")
        self.connection.register("given", given)
        self.connection.execute("INSERT INTO t SELECT * FROM given")
        self.connection.execute("CHECKPOINT")

    def get(self, key):
        """One key."""
        return len(self.connection.execute("SELECT * FROM t WHERE id = ?", [key]).fetchall())

    def batch(self, keys):
        """Many keys."""
        self.connection.register("keys", keys)
        found = self.connection.execute("SELECT t.* FROM keys JOIN t USING (id)")
        return found.to_arrow_table().num_rows


class Rocksdict(Engine):
    """RocksDB, rows packed by hand under big-endian keys."""

    def do_load(self, folder, rows):
        """Write all rows and compact them."""
        import rocksdict

        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        self.data = rocksdict.Rdict(folder, options=options)
        writes = rocksdict.WriteBatch
        for batch in protocol.load_table(rows).to_batches(max_chunksize=100_000):
            pending = writes(raw_mode=True)
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                pending.put(row[0].to_bytes(8, "big"), packed(row[1:]))
            self.data.write(pending)
        self.data.flush()
        self.data.compact_range(None, None)

    def get(self, key):
        """One key, its row unpacked."""
        found = self.data.get(key.to_bytes(8, "big"))
        return 0 if found is None else len(unpacked(found)) and 1

    def batch(self, keys):
        """Many keys at once, their rows unpacked."""
        asked = [key.to_bytes(8, "big") for key in keys.column("id").to_pylist()]
        return len([unpacked(row) for row in self.data.get(asked) if row is not None])


def packed(values):
    """The columns behind the key, as bytes."""
    texts = [text.encode() for text in values[6:]]
    return NUMBERS.pack(*values[:6], *map(len, texts)) + b"".join(texts)


def unpacked(data):
    """The columns of packed bytes."""
    *numbers, first, second = NUMBERS.unpack_from(data)
    at = NUMBERS.size
    return [
        *numbers,
        data[at : at + first].decode(),
        data[at + first : at + first + second].decode(),
    ]


class Ours(Engine):
    """lsm_engine, on a table that the benchmark has written."""

    def do_open(self, location, key):
        """Open the table and build its lookup files; seconds of the first lookup."""
        import lsm_engine as lsm

        table = lsm.open_table(location)
        # Compiled loops and imports are not what is measured: a table of nothing pays for them.
        self.query = table.query()
        began, began_cpu = time.perf_counter(), time.process_time()
        self.query.lookup([{"id": key}])
        return {
            "wall": time.perf_counter() - began,
            "cpu": time.process_time() - began_cpu,
        }

    def do_close(self):
        """Remove the lookup files."""
        self.query.close()

    def get(self, key):
        """One key."""
        return 0 if self.query.get({"id": key}) is None else 1

    def batch(self, keys):
        """Many keys."""
        return pc.sum(self.query.lookup(keys).column("_found")).as_py() or 0


ENGINES = {
    "deltalake": Deltalake, "lance": Lance, "duckdb": Duckdb, "rocksdict": Rocksdict, "ours": Ours,
}  # fmt: skip

if __name__ == "__main__":
    protocol.serve(ENGINES[os.environ["KEYS_ENGINE"]]())
