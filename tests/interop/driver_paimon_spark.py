"""Full SQL over one of our warehouses by paimon-spark, as docs/spark.md says; runs in that Spark's environment."""

import json
import sys

from pyspark.sql import SparkSession

STATEMENTS = """
INSERT INTO paimon.shop.orders VALUES (4, 'Di', 4.00), (5, 'Ed', 5.00)
UPDATE paimon.shop.orders SET price = price + 1 WHERE id = 1
DELETE FROM paimon.shop.orders WHERE id = 2
MERGE INTO paimon.shop.orders t USING (SELECT 3 AS id, 'Cyd' AS customer, 30.00 AS price UNION ALL SELECT 9, 'New', 9.00) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET customer = s.customer, price = s.price WHEN NOT MATCHED THEN INSERT (id, customer, price) VALUES (s.id, s.customer, s.price)
CALL paimon.sys.create_tag(table => 'shop.orders', tag => 'merged')
ALTER TABLE paimon.shop.orders ADD COLUMN city STRING
INSERT INTO paimon.shop.orders VALUES (10, 'Jo', 10.00, 'Ulm')
CALL paimon.sys.compact(table => 'shop.orders')
CREATE TABLE paimon.shop.made (id BIGINT, v DOUBLE) TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '2')
INSERT INTO paimon.shop.made VALUES (1, 1.5)
"""
QUERIES = {
    "before": "SELECT id, customer, CAST(price AS STRING) FROM paimon.shop.orders ORDER BY id",
    "travelled": "SELECT count(*) FROM paimon.shop.orders VERSION AS OF 1",
    "tagged": "SELECT count(*) FROM paimon.shop.orders VERSION AS OF 'merged'",
    "after": "SELECT id, customer, CAST(price AS STRING), city FROM paimon.shop.orders ORDER BY id",
}


def main(settings):
    """Print what the queries found, as JSON."""
    builder = SparkSession.builder
    for key, text in json.loads(settings).items():
        builder = builder.config(key, text)
    spark = builder.getOrCreate()

    def rows(name):
        return [list(row) for row in spark.sql(QUERIES[name]).collect()]

    found = {"before": rows("before")}
    for statement in STATEMENTS.strip().splitlines():
        try:
            spark.sql(statement).collect()
        except Exception as error:  # noqa: BLE001 -- named with the statement
            raise SystemExit(f"{statement}: {str(error)[:1500]}") from None
    print("found " + json.dumps(found | {name: rows(name) for name in ("travelled", "tagged", "after")}))  # fmt: skip
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
