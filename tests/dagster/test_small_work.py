"""Small work runs without a JVM on a lake whose executor is Spark, and says why; large work starts Spark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import lsm_engine as lsm
from lsm_assets.factory import lsm_definitions, lsm_table_assets
from lsm_assets.keys import AssetKind
from lsm_assets.resource import ExecutorOnDemand, LsmResource
from lsm_assets.settings import EXECUTOR, WAREHOUSE, settings_from
from lsm_engine.spark import configured_local_bytes
from tests.dagster.lake import KEYS, MARKS, ORDERS, Lake, rows

pytestmark = MARKS


class JvmStartedError(Exception):
    """Raised in place of starting a Spark session."""


class SparkLake(Lake):
    """A lake whose executor is Spark."""

    def __post_init__(self) -> None:
        self.settings = settings_from({WAREHOUSE: str(self.warehouse), EXECUTOR: "spark"})
        self.definitions = lsm_definitions(self.tables, self.settings)
        self.repository = self.definitions.get_repository_def()


@pytest.fixture
def spark_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkLake]:
    def start(self: LsmResource) -> Any:
        raise JvmStartedError

    monkeypatch.setattr(LsmResource, "spark", property(start))
    to_write: list[Any] = []
    orders = lsm_table_assets(ORDERS, lambda context, table: list(to_write))
    with dg.DagsterInstance.ephemeral() as instance:
        yield SparkLake(tmp_path / "lake", instance, [orders], to_write)


def test_small_work_starts_no_jvm_and_says_why(spark_lake: SparkLake) -> None:
    def run(job: str, **how: Any) -> bool:
        named = spark_lake.repository.get_job(KEYS.op(job))
        return named.execute_in_process(instance=spark_lake.instance, **how).success

    spark_lake.write(*(rows(number) for number in range(6)))
    assert run("compact_due")
    (event,) = spark_lake.events(AssetKind.COMPACTION)[-1:]
    assert event.metadata["lsm/executor"].value.startswith("this process: files of ")
    assert event.metadata["lsm/executor"].value.endswith("up to the 256 MB that need no Spark")
    assert run("read_snapshots", partition_key="6")
    (event,) = spark_lake.events(AssetKind.SNAPSHOTS)[-1:]
    assert event.metadata["lsm/executor"].value.startswith("this process: ")
    lsm.open_table(spark_lake.warehouse / "shop.db/orders").alter(
        lsm.SetOption("manifest.merge-min-count", "2")
    )
    newest = spark_lake.snapshots[-1]
    assert spark_lake.materialise(AssetKind.MANIFEST_LISTS, partition_key=newest).success
    metadata = [event.metadata for event in spark_lake.events(AssetKind.MANIFEST_LISTS)]
    executors = [page["lsm/executor"].value for page in metadata if "lsm/executor" in page]
    assert [text.partition(" of ")[0] for text in executors] == ["this process: manifests"]
    spark_lake.add_tag_partition("v1")
    assert spark_lake.materialise(AssetKind.TAGS, partition_key="v1").success
    assert run("verify")


def test_large_work_starts_spark(spark_lake: SparkLake, monkeypatch: pytest.MonkeyPatch) -> None:
    spark_lake.write(*(rows(number) for number in range(6)))
    monkeypatch.setattr("lsm_assets.resource.configured_local_bytes", lambda settings: 100)
    lsm.open_table(spark_lake.warehouse / "shop.db/orders").alter(
        lsm.SetOption("manifest.merge-min-count", "2")
    )
    snapshot = {"partition_key": "6"}
    for kind, how in (
        (AssetKind.COMPACTION, {}),
        (AssetKind.SNAPSHOTS, snapshot),
        (AssetKind.MANIFEST_LISTS, snapshot),
    ):
        with pytest.raises(JvmStartedError):
            spark_lake.materialise(kind, **how)


def test_the_bytes_without_spark_are_those_of_a_running_session() -> None:
    mega = 1024 * 1024
    assert configured_local_bytes({}) == 8 * 32 * mega
    assert configured_local_bytes({"spark.master": "local[4]"}) == 8 * 32 * mega
    assert configured_local_bytes({"spark.master": "spark://host:7077"}) == 32 * mega
    size = {"spark.lsm.driver-bytes": "1mb", "spark.lsm.shared-disk": "true"}
    assert configured_local_bytes({"spark.master": "yarn", **size}) == 8 * mega
    assert configured_local_bytes({"spark.lsm.driver-bytes": "0"}) == 0


def test_storage_is_checked_by_an_executor_only_once_it_starts() -> None:
    class Checking:
        def __init__(self) -> None:
            self.checked: list[Any] = []

        def check_storage(self, file_io: Any) -> None:
            self.checked.append(file_io)

    checking = Checking()
    executor = ExecutorOnDemand(lambda: checking, local_bytes=10)
    executor.check_storage("disk")
    assert not executor.is_started
    assert executor.takes_locally(10, "files")
    assert not executor.takes_locally(11, "files")
    assert executor.choice.startswith("Spark: files of ")
    assert executor.started is checking
    executor.check_storage("another")
    assert checking.checked == ["disk", "another"]
