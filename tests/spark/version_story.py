"""What an older PySpark does with the engine's functions for DataFrames; prints the names of those that work."""

import os
import sys

import pyspark

import lsm_engine as lsm
import lsm_engine.spark as engine


def main(lake: str) -> None:
    """Upsert, read, merge, look up, follow changes, compact on executors; say what is missing."""
    spark = engine.local_session(
        threads=2,
        quick_start=True,
        settings={"spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"]},
    )
    catalog = lsm.open_catalog(lake)
    table = catalog.create_table(
        "shop.t", {"id": "BIGINT", "v": "BIGINT"}, primary_key="id", options={"bucket": "5"}
    )
    rows = spark.range(1000).selectExpr("id", "id * 2 as v")
    assert engine.upsert_dataframe(table, rows).id == 1
    assert engine.read_dataframe(table, spark=spark).selectExpr("sum(v)").first()[0] == 999000
    source = spark.createDataFrame([(1, 5), (2000, 6)], "id long, v long")
    merge = engine.merge_dataframe(table, source, on="id").when_matched_update_all()
    merge.when_not_matched_insert_all().execute()
    assert table.count() == 1001
    assert engine.changes_dataframe(table, spark=spark).count() == 1002
    asked = spark.createDataFrame([(1,), (7777,)], "id long")
    assert engine.lookup_join(asked, table, columns=["v"]).where("v IS NOT NULL").count() == 1
    located = engine.locate_dataframe(table, asked).where("_action = 'update'")
    assert located.count() == 1
    engine.on_spark(table, spark).compact(full=True)
    assert not engine.verify_table(table, spark).problems
    copy = catalog.create_table("shop.copy", {"id": "BIGINT", "v": "BIGINT"}, primary_key="id")
    rows.write.parquet(f"{lake}/given")
    query = (
        spark.readStream.schema("id long, v long").parquet(f"{lake}/given")
        .writeStream.foreachBatch(engine.upsert_batches(copy))
        .option("checkpointLocation", f"{lake}/checkpoint").trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    assert copy.count() == 1000
    print("frames work", pyspark.__version__)
    try:
        engine.register(spark, warehouse=lake)
        assert spark.read.format("lsm").load(table.location).count() == 1001
        print("the format works")
    except ImportError as error:
        print("refused:", error)


if __name__ == "__main__":
    main(*sys.argv[1:])
