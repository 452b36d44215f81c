"""A table on a disk of the driver is refused where executors run on other machines."""

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lsm_engine as lsm
from lsm_engine.base.errors import ErrorKind
from lsm_engine.spark import SparkExecutor
from lsm_engine.spark.session import check_shared, runs_elsewhere
from lsm_engine.spark.source.datasource import ClusterSource
from lsm_engine.storage.local import LocalFileIO
from lsm_engine.testing.memory_file_io import MemoryFileIO


class Settings:
    """A session by what it is asked for; `SparkSession` by class, as a classic one."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._settings = settings

    def get(self, key: str, default: str | None = None) -> str | None:
        return self._settings.get(key, default)


def session(master: str | None, shared: str | None = None, *, connect: bool = False) -> Any:
    named = {"spark.master": master, "spark.lsm.shared-disk": shared}
    made: Any = object.__new__(Remote if connect else Classic)
    made.settings = Settings({key: value for key, value in named.items() if value is not None})
    return made


class Classic(SparkSession):
    @property
    def conf(self) -> Any:
        return self.settings


class Remote:
    """A Spark Connect session is of another class."""

    @property
    def conf(self) -> Any:
        return self.settings


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,4]", "local-cluster[2,1,1024]"])
def test_a_local_master_shares_the_disk(master: str) -> None:
    assert not runs_elsewhere(session(master))


@pytest.mark.parametrize("master", ["spark://a:7077", "yarn", "k8s://https://a:443", None])
def test_any_other_master_shares_none_unless_the_session_says_so(master: str | None) -> None:
    assert runs_elsewhere(session(master))
    assert runs_elsewhere(session(master, "false"))
    assert not runs_elsewhere(session(master, "True"))


def test_spark_connect_shares_none_even_with_a_local_master() -> None:
    assert runs_elsewhere(session("local[*]", connect=True))
    assert not runs_elsewhere(session("local[*]", "true", connect=True))


def test_disks_are_refused_and_other_storage_is_not(tmp_path) -> None:
    with pytest.raises(lsm.InvalidOptionError, match=r"spark\.lsm\.shared-disk") as refused:
        check_shared(session("yarn"), LocalFileIO(str(tmp_path)))
    assert refused.value.kind is ErrorKind.NOT_SHARED
    assert refused.value.facts["location"] == str(tmp_path)
    check_shared(session("yarn"), MemoryFileIO())


def test_a_compaction_is_refused_before_its_first_job(tmp_path) -> None:
    executor = SparkExecutor(session("spark://a:7077"))
    with lsm.open_catalog(
        f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path), executor=executor
    ) as catalog:
        catalog.create_database("shop")
        table = catalog.create_table(
            "shop.orders",
            pa.schema([("id", pa.int64()), ("v", pa.string())]),
            primary_key=["id"],
        )
        table.upsert([{"id": 1, "v": "a"}])  # rows of this process are written by it
        table.upsert([{"id": 1, "v": "b"}])
        with pytest.raises(lsm.InvalidOptionError, match="storage that all of them share"):
            table.compact(full=True)
        assert table.latest_snapshot().id == 2
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "v": "b"}]


@pytest.mark.parametrize(
    "options",
    [
        {"path": "/lake/a.db/b"},
        {"path": "relative/b"},
        {"path": "file:///lake/a.db/b"},
        {"path": "/lake/a.db/b$files"},
        {"path": "sys.tables", "catalog": "postgresql://h/d", "warehouse": "/lake"},
    ],
)
def test_the_format_refuses_paths_of_disks_on_a_cluster(options: dict[str, str]) -> None:
    source = ClusterSource(options)
    with pytest.raises(lsm.InvalidOptionError, match=r"spark\.lsm\.shared-disk"):
        source.schema()
