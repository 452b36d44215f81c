"""Spark of other versions, with the table formats that bring a plugin for the JVM."""

import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.environments import (
    EnvironmentFailedError,
    made_once,
    make_virtual_environment,
    maven_jars,
)


@dataclass(frozen=True)
class OtherSpark:
    """A version of PySpark, the jars of a plugin from Maven's repository, and a session's settings for it."""

    pyspark: str
    artifacts: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()

    def python(self) -> Path:
        """The interpreter of an environment of its own, made now if it is not there."""
        requirements = (f"pyspark=={self.pyspark}",)
        facts: dict[str, object] = {"requirements": list(requirements), "python": sys.version.split()[0]}  # fmt: skip
        folder = made_once(
            f"pyspark-{self.pyspark}",
            facts,
            lambda made: make_virtual_environment(made, requirements),
        )
        return folder / "venv" / "bin" / "python"

    def jars(self) -> list[Path]:
        """The jars, fetched once."""
        name = self.artifacts[0].split(":")[1]
        return maven_jars(f"jars-{name}", self.artifacts, alone=True)

    def configured(self, warehouse: Path) -> dict[str, str]:
        """All settings of a session over a warehouse; nothing of it is seen outside this machine."""
        given = {key: text.format(warehouse=warehouse) for key, text in self.settings}
        return {
            "spark.master": "local[2]",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.warehouse.dir": str(warehouse),
            "spark.jars": ",".join(map(str, self.jars())),
            **given,
        }

    def as_page_says(self, page: str, lake: Path) -> tuple[Path, dict[str, str]]:
        """Return the interpreter, and the settings with those of a page's recipe; skips the test where they cannot be had."""
        if shutil.which("mvn") is None or shutil.which("java") is None:
            pytest.skip("Maven and Java are not on this machine")
        block = re.search(r"```properties\n(spark\.jars\.packages.*?)```", page, re.DOTALL)
        assert block is not None
        recipe = dict(line.split("=", 1) for line in block[1].strip().splitlines())
        try:
            settings = self.configured(lake)
            python = self.python()
        except EnvironmentFailedError as failed:
            pytest.skip(f"cannot be fetched here: {failed}")
        assert recipe.pop("spark.jars.packages") == self.artifacts[0]
        return python, settings | {
            key: text.replace("file:/lake", f"file:{lake}") for key, text in recipe.items()
        }


PAIMON = OtherSpark(
    "3.5.9",
    ("org.apache.paimon:paimon-spark-3.5:0.9.0",),  # the newest that Maven's repository has
    (
        ("spark.sql.catalog.paimon", "org.apache.paimon.spark.SparkCatalog"),
        ("spark.sql.catalog.paimon.warehouse", "file:{warehouse}"),
        (
            "spark.sql.extensions",
            "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions",
        ),
    ),
)
DELTA = OtherSpark(
    "4.1.4",
    ("io.delta:delta-spark_4.1_2.13:4.4.0", "io.delta:delta-storage:4.4.0"),
    (
        ("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension"),
        ("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"),
    ),
)
ICEBERG = OtherSpark(
    "4.1.4",
    ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",),
    (
        (
            "spark.sql.extensions",
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        ),
        ("spark.sql.catalog.ice", "org.apache.iceberg.spark.SparkCatalog"),
        ("spark.sql.catalog.ice.type", "hadoop"),
        ("spark.sql.catalog.ice.warehouse", "file:{warehouse}"),
    ),
)
HUDI = OtherSpark(
    "3.5.9",
    ("org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",),
    (
        ("spark.serializer", "org.apache.spark.serializer.KryoSerializer"),
        ("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar"),
        ("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension"),
        ("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog"),
    ),
)
