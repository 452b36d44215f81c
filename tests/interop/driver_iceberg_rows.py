"""Answer with the rows of tables as iceberg-spark reads them, one table a line, until standard input ends.

The first argument holds the session's settings. A line is a JSON object: `path` is the folder of a table, `snapshot` the
snapshot to read or null for the newest, `filter` a condition or null, and `rows` the Arrow file that the rows go to.
"""

import json
import sys

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def main() -> None:
    """Serve."""
    builder = SparkSession.builder
    for key, text in json.loads(sys.argv[1]).items():
        builder = builder.config(key, text)
    session = builder.getOrCreate()
    for line in sys.stdin:
        request = json.loads(line)
        reader = session.read.format("iceberg")
        if request["snapshot"] is not None:
            reader = reader.option("versionAsOf", str(request["snapshot"]))
        try:
            frame = reader.load(request["path"])
            if request["filter"] is not None:
                frame = frame.where(request["filter"])
            rows = frame.toArrow()
        except (PySparkException, Py4JError) as error:  # the parent tells it as a difference
            print("refused", json.dumps(str(error).partition("\n")[0]), flush=True)
            continue
        with pa.OSFile(request["rows"], "wb") as sink, pa.ipc.new_file(sink, rows.schema) as file:
            file.write_table(rows)
        print("read", rows.num_rows, flush=True)


if __name__ == "__main__":
    main()
