"""A Spark session with one table format, driven by spark_formats.py: one JSON request a line in, one answer a line out.

Runs in the environment of the format's own Spark, hence only the standard library and PySpark; ours alone
imports the engine.
"""

import json
import sys
import traceback

from pyspark.sql import SparkSession

COLUMNS = (
    "k BIGINT, a BIGINT, b DOUBLE, c DOUBLE, s STRING, t STRING, d DATE, ts TIMESTAMP, "
    "dec DECIMAL(18, 2)"
)
CLAUSES = (
    "ON t.k = s.k WHEN MATCHED AND s.a < 100 THEN DELETE WHEN MATCHED THEN UPDATE SET * "
    "WHEN NOT MATCHED THEN INSERT *"
)


class Format:
    """A table format that has SQL in the JVM."""

    name = "t"
    create: str
    upserts = (
        "MERGE INTO {name} t USING given s ON t.k = s.k WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    compactions: tuple[str, ...] = ()

    def __init__(self, settings, folder):
        builder = SparkSession.builder.appName("bench")
        for key, text in settings.items():
            builder = builder.config(key, text)
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")
        self.folder = folder

    def sql(self, text):
        return self.spark.sql(text)

    def do_warm(self, path):
        for _ in range(3):
            self._summed(self.spark.read.parquet(path))

    def do_create(self):
        self.sql(self.create.format(columns=COLUMNS, name=self.name))

    def do_query(self, text):
        return [list(row) for row in self.sql(text).collect()]

    def _given(self, path):
        rows = self.spark.read.parquet(path)
        rows.createOrReplaceTempView("given")
        return rows

    def do_load(self, path):
        self._given(path)
        self.sql(f"INSERT INTO {self.name} SELECT * FROM given")

    def do_upsert(self, path):
        self._given(path)
        self.sql(self.upserts.format(name=self.name))

    def do_merge(self, path):
        self._given(path)
        self.sql(f"MERGE INTO {self.name} t USING given s {CLAUSES}")

    def do_delete(self):
        self.sql(f"DELETE FROM {self.name} WHERE a % 10 = 3")

    def _frame(self):
        return self.spark.table(self.name)

    def do_read(self):
        return self._summed(self._frame())

    def _summed(self, frame):
        rows = frame.groupBy("t").agg({"*": "count", "a": "sum"}).collect()
        return [sum(row["count(1)"] for row in rows), sum(row["sum(a)"] for row in rows)]

    def do_compact(self):
        for text in self.compactions:
            self.sql(text.format(name=self.name)).collect()
        return bool(self.compactions)

    def do_lookup(self, key):
        return self._frame().where(f"k = {key}").count()

    def _changes(self):
        return None

    def do_stream(self, checkpoint):
        changes = self._changes()
        if changes is None:
            return None
        query = (
            changes.writeStream.format("noop").option("checkpointLocation", checkpoint)
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        return sum(one["numInputRows"] for one in query.recentProgress)


class Paimon(Format):
    name = "paimon.bench.t"
    create = "CREATE TABLE {name} ({columns}) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2')"
    upserts = "INSERT INTO {name} SELECT * FROM given"
    compactions = ("CALL paimon.sys.compact(table => 'bench.t', compact_strategy => 'full')",)

    def do_warm(self, path):
        for _ in range(3):
            self._summed(self.spark.read.parquet(path))

    def do_create(self):
        self.sql("CREATE DATABASE paimon.bench")
        super().do_create()

    def do_compact(self):
        self.sql("CALL paimon.sys.compact(table => 'bench.t')").collect()  # 0.9 knows no strategy
        return True

    def _changes(self):
        return self.spark.readStream.option("scan.mode", "latest-full").table(self.name)


class Delta(Format):
    create = (
        "CREATE TABLE {name} ({columns}) USING delta TBLPROPERTIES "
        "('delta.enableDeletionVectors' = 'true')"
    )
    compactions = ("OPTIMIZE {name}",)


class DeltaChanges(Delta):
    """The same with a change data feed, to be read as a stream."""

    create = (
        "CREATE TABLE {name} ({columns}) USING delta TBLPROPERTIES "
        "('delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true')"
    )

    def _changes(self):
        return self.spark.readStream.option("readChangeFeed", "true").option("startingVersion", 0).table(self.name)  # fmt: skip


class Iceberg(Format):
    name = "ice.bench.t"
    create = (
        "CREATE TABLE {name} ({columns}) USING iceberg TBLPROPERTIES ('format-version' = '2', "
        "'write.merge.mode' = 'merge-on-read', 'write.delete.mode' = 'merge-on-read', "
        "'write.update.mode' = 'merge-on-read')"
    )
    compactions = (
        "CALL ice.system.rewrite_data_files(table => 'bench.t', options => map('rewrite-all', 'true'))",
    )


class Hudi(Format):
    def do_load_files(self, path, count):
        """Write rows as files side by side, each of a range of keys, with statistics of columns in the metadata table."""
        options = {
            "hoodie.table.name": self.name,
            "hoodie.datasource.write.recordkey.field": "k",
            "hoodie.datasource.write.operation": "bulk_insert",
            "hoodie.bulkinsert.sort.mode": "NONE",
            "hoodie.metadata.enable": "true",
            "hoodie.metadata.index.column.stats.enable": "true",
            "hoodie.metadata.record.index.enable": "true",
        }
        rows = self.spark.read.parquet(path).repartitionByRange(count, "k")
        place = f"{self.folder}/{self.name}"
        rows.write.format("hudi").options(**options).mode("overwrite").save(place)
        self.sql(f"CREATE TABLE {self.name} USING hudi LOCATION '{place}'")
        self.sql("SET hoodie.enable.data.skipping = true")
        self.sql("SET hoodie.metadata.enable = true")
        # CREATE INDEX asks for a lock.
        lock = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
        self.sql(f"SET hoodie.write.lock.provider = {lock}")

    create = (
        "CREATE TABLE {name} ({columns}) USING hudi TBLPROPERTIES (type = 'mor', primaryKey = 'k')"
    )
    compactions = ("CALL run_compaction(op => 'scheduleAndExecute', table => '{name}')",)

    def do_upsert(self, path):
        rows = self._given(path)
        options = {
            "hoodie.table.name": self.name,
            "hoodie.datasource.write.recordkey.field": "k",
            "hoodie.datasource.write.operation": "upsert",
            "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        }
        rows.write.format("hudi").options(**options).mode("append").save(f"{self.folder}/{self.name}")  # fmt: skip

    def _changes(self):
        return self.spark.readStream.format("hudi").option("hoodie.datasource.streaming.startOffset", "earliest").load(f"{self.folder}/{self.name}")  # fmt: skip


class Ours(Format):
    name = "bench.t"
    create = "CREATE TABLE {name} ({columns}) USING lsm TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2')"
    compactions = ("CALL sys.compact(table => '{name}', compact_strategy => 'full')",)

    def __init__(self, settings, folder):
        super().__init__(settings, folder)
        import lsm_engine as lsm
        from lsm_engine import spark as lsm_spark

        self.engine = lsm_spark
        lsm_spark.register(self.spark, warehouse=folder)
        self.catalog = lsm.open_catalog(folder)

    def sql(self, text):
        return self.engine.sql(self.spark, text)

    def do_upsert(self, path):
        self.engine.upsert_dataframe(self.catalog["bench.t"], self._given(path))

    def _frame(self):
        return self.engine.read_dataframe(self.catalog["bench.t"], spark=self.spark)

    def do_read(self):
        return self._summed(self.engine.read_dataframe(self.catalog["bench.t"], ["t", "a"], spark=self.spark))  # fmt: skip

    def do_read_all_columns(self):
        return self._summed(self._frame())

    def do_read_by_format(self):
        return self._summed(self.spark.read.format("lsm").load(self.catalog["bench.t"].location))

    def do_lookup(self, key):
        return self.engine.read_dataframe(self.catalog["bench.t"], where=f"k = {key}", spark=self.spark).count()  # fmt: skip

    def _changes(self):
        return self.spark.readStream.format("lsm").option("read.changelog", "true").load(self.catalog["bench.t"].location)  # fmt: skip


FORMATS = {kind.__name__: kind for kind in (Paimon, Delta, DeltaChanges, Iceberg, Hudi, Ours)}


def main(name, settings, folder):
    """Answer requests until there are none."""
    driven = FORMATS[name](json.loads(settings), folder)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = {"ok": getattr(driven, f"do_{asked.pop('op')}")(**asked)}
        except Exception as error:  # noqa: BLE001 -- it is the answer
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        print("answer " + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
