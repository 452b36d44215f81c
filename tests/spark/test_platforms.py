"""Spark as other platforms bring it: settings that are no numbers, modules under another package's name."""

import importlib
from importlib import metadata
from types import SimpleNamespace

import pytest

import lsm_engine.spark
from lsm_engine.spark import session

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("asked", "goal"), [("auto", 200), ("64", 64), (None, 2)])
@pytest.mark.parametrize("is_classic", [True, False])
def test_partitions_of_a_shuffle_may_be_automatic(monkeypatch, asked, goal, is_classic):
    settings = {"spark.dynamicAllocation.enabled": "true"}
    if asked is not None:
        settings["spark.sql.shuffle.partitions"] = asked
    spark = SimpleNamespace(conf=settings, sparkContext=SimpleNamespace(defaultParallelism=40))
    monkeypatch.setattr(session, "is_classic", lambda _: is_classic)
    assert session.task_goal(spark) == (max(80, goal) if is_classic else goal)
    settings["spark.dynamicAllocation.enabled"] = "false"
    assert session.task_goal(spark) == (80 if is_classic else goal)


def test_the_version_is_named_where_another_package_brings_the_module(monkeypatch):
    def import_module(name):
        if name.startswith("lsm_engine.spark."):
            raise ImportError("no such name", name="pyspark.sql.datasource")
        return importlib.import_module(name)

    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(lsm_engine.spark, "import_module", import_module)
    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr("pyspark.__version__", "16.2.0")
    monkeypatch.delitem(vars(lsm_engine.spark), "register", raising=False)
    with pytest.raises(
        ImportError, match=r"register needs PySpark 4\.1 or newer.* 16\.2\.0 is here"
    ):
        getattr(lsm_engine.spark, "register")  # noqa: B009
