"""The examples of lsm_assets/docs/assets.md work as they are written."""

import re
from pathlib import Path

import dagster as dg
import pytest
import yaml

from lsm_assets.component import LsmTableComponent, arrow_schema_of
from lsm_assets.settings import (
    CATALOG_URL,
    DAGSTER_HOME,
    EXECUTOR,
    LINEAGE_URL,
    SPARK_MASTER,
    WAREHOUSE,
    lineage_page_url,
    settings_from,
)
from lsm_engine.api.catalog import open_catalog
from tests.dagster.lake import MARKS

pytestmark = MARKS
DOCS = Path(__file__).parent.parent.parent / "lsm_assets" / "docs"
TEXT = (DOCS / "assets.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    assert found is not None
    return found[1]


def test_every_key_of_metadata_is_described() -> None:
    source = "".join(path.read_text() for path in DOCS.parent.glob("*.py"))
    keys = set(re.findall(r"\"(lsm/[a-z_]+)\"", source)) - {
        "lsm/partition_column",
        "lsm/kind",
    }  # a misspelling, a tag
    assert [key for key in sorted(keys) if f"`{key}`" not in TEXT] == []
    described = TEXT.split("## Metadata on the pages")[1].split("## Settings")[0]
    stale = {key for key in re.findall(r"`(lsm/[a-z_]+)`", described) if key not in keys}
    assert stale == {f"lsm/{name}_amplification" for name in ("read", "space", "write")}


def test_the_python_example_makes_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LSM_WAREHOUSE", str(tmp_path))
    monkeypatch.setenv("LSM_EXECUTOR", "local")
    names: dict[str, object] = {}
    exec(compile(block("python"), "assets.md", "exec"), names)
    defs = names["defs"]
    assert isinstance(defs, dg.Definitions)
    key = dg.AssetKey(["shop", "orders"])
    job = defs.get_repository_def().get_implicit_job_def_for_assets([key])
    with dg.DagsterInstance.ephemeral() as instance:
        assert job.execute_in_process(instance=instance, asset_selection=[key]).success
    with open_catalog(f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=str(tmp_path)) as catalog:
        assert catalog.table("shop.orders").scan().count() == 2


def test_the_yaml_example_is_understood() -> None:
    told = yaml.safe_load(block("yaml"))["attributes"]
    component = LsmTableComponent.model_validate(told)
    assert arrow_schema_of(component.columns).names == ["order_id", "price"]
    assert component.declaration().options == {"bucket": "4"}


def test_settings_are_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(LINEAGE_URL, raising=False)
    told = dict(re.findall(r"^\| `([A-Z_]+)` \| ([^|]*) \|", TEXT, re.MULTILINE))
    here, on_store = settings_from({}), settings_from({WAREHOUSE: "s3://bucket/lake"})
    lake = tmp_path / "lake"
    assert told == {
        WAREHOUSE: "`./lake`",
        CATALOG_URL: "`catalog.db` in the warehouse",
        DAGSTER_HOME: "`dagster` in the warehouse",
        EXECUTOR: f"`{here.executor}`",
        SPARK_MASTER: "this machine, all its cores",
        LINEAGE_URL: "the file `lineage.html` in the warehouse",
    }
    for settings, name in ((here, "catalog.db"), (on_store, "s3-bucket-lake.db")):
        assert settings.catalog_url == f"sqlite:///{lake / name}"
        assert settings.dagster_home == str(lake / "dagster")
    assert "`lake/s3-bucket-lake.db`" in TEXT
    assert lineage_page_url(here.warehouse) == (lake / "lineage.html").as_uri()


def test_every_picture_is_there_and_small() -> None:
    shown = set(re.findall(r"\(pictures/(.*?)\)", TEXT))
    stored = {path.name: path.stat().st_size for path in (DOCS / "pictures").iterdir()}
    assert shown <= stored.keys()
    assert all(size < 120_000 for size in stored.values())
