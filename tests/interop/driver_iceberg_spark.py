"""Run queries in a session of Spark with Iceberg's runtime; print their rows as JSON."""

import json
import sys

from pyspark.sql import SparkSession


def main() -> None:
    """Answer the queries of the second argument by the settings of the first; the third holds paths of tables."""
    builder = SparkSession.builder
    for key, text in json.loads(sys.argv[1]).items():
        builder = builder.config(key, text)
    session = builder.getOrCreate()
    for number, path in enumerate(json.loads(sys.argv[3])):
        session.read.format("iceberg").load(path).createOrReplaceTempView(f"path{number}")
    answers = [session.sql(query).collect() for query in json.loads(sys.argv[2])]
    print("answers", json.dumps(answers, default=str))


if __name__ == "__main__":
    main()
