"""iceberg-spark as a reader of tables with Iceberg metadata, in a session that stays open."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from tests.interop.environments import HERE
from tests.interop.other_sparks import ICEBERG


class RefusedError(AssertionError):
    """Spark cannot read the table."""


class IcebergSpark:
    """Reads tables by their folders."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self._folder = folder

    def rows(
        self, path: str, *, snapshot: int | None = None, condition: str | None = None
    ) -> pa.Table:
        """Return the rows of the newest or another snapshot, those that a condition in SQL keeps."""
        file = self._folder / "rows.arrow"
        request = {"path": path, "snapshot": snapshot, "filter": condition, "rows": str(file)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        word, _, text = self._process.stdout.readline().strip().partition(" ")
        if word != "read":
            raise RefusedError(f"iceberg-spark: {text}")
        with pa.OSFile(str(file)) as source:
            return pa.ipc.open_file(source).read_all()


@contextmanager
def iceberg_spark() -> Iterator[IcebergSpark]:
    """Open a session of one thread, with PyArrow of this environment; EnvironmentFailedError if Spark is not to be had."""
    catalog = "spark.sql.catalog.default_iceberg"
    with tempfile.TemporaryDirectory() as folder:
        settings = ICEBERG.configured(Path(folder)) | {
            "spark.master": "local[1]",
            # Tables are small: compiling what a query runs costs more than it saves, half of a read.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": "false",
            # Tables by path are of this catalog. It would show an older snapshot for 30 s.
            catalog: "org.apache.iceberg.spark.SparkCatalog",
            f"{catalog}.type": "hadoop",
            f"{catalog}.warehouse": f"file:{folder}",
            f"{catalog}.cache-enabled": "false",
        }
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        packages = ICEBERG.python().parent.parent / "lib" / version / "site-packages"
        process = subprocess.Popen(
            [sys.executable, str(HERE / "driver_iceberg_rows.py"), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": str(packages)},
        )
        with process:
            try:
                yield IcebergSpark(process, Path(folder))
            finally:
                process.stdin.close()  # type: ignore[union-attr]
