"""`lsm-sample --on s3`: the sample's pipeline on a local S3 server, which it starts and ends."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

import lsm_engine as lsm
from lsm_assets.sample.local_s3 import ARTIFACT, JAR, command_words, local_s3
from lsm_assets.sample.run import main
from lsm_assets.sample.tables import TABLES
from tests.dagster.lake import MARKS
from tests.stores import servers

pytestmark = MARKS


@pytest.fixture
def jar(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The jar that tests of stores have fetched."""
    found = servers.s3proxy_jar()
    monkeypatch.setenv(JAR, str(found))
    assert servers.S3PROXY == ARTIFACT
    return found


@pytest.mark.parametrize("executor", ["local", pytest.param("spark", marks=pytest.mark.sweep)])
def test_the_sample_runs_on_s3(jar: Path, tmp_path: Path, executor: str) -> None:
    before = dict(os.environ)
    arguments = ["--on", "s3", "--days", "1", "--warehouse", str(tmp_path), "--executor", executor]
    printed = CliRunner().invoke(main, arguments)
    assert printed.exit_code == 0, printed.output
    assert "Where a figure came from" in printed.output
    assert f"--days 0 --ui --on s3 --warehouse {tmp_path}" in " ".join(printed.output.split())
    assert dict(os.environ) == before
    kept = {
        path.name for path in (tmp_path / "buckets" / "lake" / "sample" / "flights.db").iterdir()
    }
    assert kept == {table.keys.short_name for table in TABLES}
    assert not list(tmp_path.glob("**/flights.db/**/*.parquet.tmp"))
    with local_s3(tmp_path, os.environ) as found:
        storage = {
            "s3.endpoint": found["LSM_STORAGE_S3_ENDPOINT"],
            "s3.access-key": found["LSM_STORAGE_S3_ACCESS_KEY"],
            "s3.secret-key": found["LSM_STORAGE_S3_SECRET_KEY"],
        }
        url, warehouse = found["LSM_CATALOG_URL"], found["LSM_WAREHOUSE"]
        with lsm.open_catalog(url, warehouse=warehouse, storage=storage) as catalog:
            for name in catalog.list_tables():
                assert catalog.table(name).verify(deep=True).is_clean
            assert catalog.table("flights.flights").scan().to_arrow().num_rows == 838
    assert found["LSM_STORAGE_S3_SECRET_KEY"] not in printed.output


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(lsm.NotFoundError, match=JAR), local_s3(tmp_path, {JAR: "none"}):
        pass
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(lsm.NotFoundError, match="Maven"), local_s3(tmp_path, {}):
        pass


def test_the_command_that_opens_it_again() -> None:
    lake, here = Path("lake").absolute(), Path("lake-s3").absolute()
    assert command_words(str(lake), f"{lake}/dagster") == []
    assert command_words("/data/lake", "/data/lake/dagster") == ["--warehouse", "/data/lake"]
    assert command_words("s3://lake/sample", f"{here}/dagster") == ["--on", "s3"]
