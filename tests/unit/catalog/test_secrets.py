"""Passwords, keys and signatures in URLs appear in no error, log, property, lineage or run config."""

import io
import json
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_assets.resource import resources_from
from lsm_assets.settings import settings_from
from lsm_engine.base.errors import without_secrets
from lsm_engine.catalog.lineage.openlineage import run_events
from lsm_engine.catalog.provenance import Input, Run, provenance_properties

SECRET = "hush"
KEYS = pa.schema([("k", pa.int64())])
WRONG: dict[str, Callable[[str], Any]] = {
    "user of a store": lambda root: lsm.open_table("s3://me:" + SECRET + "@bucket/t"),
    "parameter of a store": lambda root: lsm.open_table("s3://bucket/t?X-Amz-Signature=" + SECRET),
    "warehouse": lambda root: lsm.open_catalog(
        f"sqlite:///{root}/c.db", warehouse="s3://me:" + SECRET + "@bucket/w"
    ).create_table("a.b", KEYS, primary_key=["k"]),
    "database": lambda root: lsm.open_catalog(
        "postgresql://me:" + SECRET + "@127.0.0.1:1/x", warehouse=root
    ),
    **{
        f"database, password with {part!r}": lambda root, part=part: lsm.open_catalog(
            "postgresql://me:" + part + SECRET + "@127.0.0.1:1/x", warehouse=root
        )
        for part in ("a@", "a/", "a?", "a:", "a%40", "a@b/", "a@b@", "#")
    },
    "database, user with @": lambda root: lsm.open_catalog(
        "postgresql://me@" + SECRET + ":" + SECRET + "@127.0.0.1:1/x", warehouse=root
    ),
    "warehouse, password with @ and /": lambda root: lsm.open_catalog(
        f"sqlite:///{root}/c.db", warehouse="s3://me:a@b/" + SECRET + "@bucket/w"
    ).create_table("a.b", KEYS, primary_key=["k"]),
    "parameter of a database": lambda root: lsm.open_catalog(
        "postgresql://me@127.0.0.1:1/x?password=" + SECRET, warehouse=root
    ),
    "no database": lambda root: lsm.open_catalog(
        "postgresql://me:" + SECRET + "@[bad/x", warehouse=root
    ),
    "another database": lambda root: lsm.open_catalog(
        "mysql://me:" + SECRET + "@127.0.0.1/x", warehouse=root
    ),
    "parameter of sqlite": lambda root: lsm.open_catalog(
        "sqlite:////nowhere/x?password=" + SECRET, warehouse=root
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_errors_and_logs_hold_no_secret(what: str, tmp_path: Path) -> None:
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    logging.getLogger().addHandler(handler)
    try:
        with pytest.raises(lsm.LsmError) as refused:
            WRONG[what](str(tmp_path))
    finally:
        logging.getLogger().removeHandler(handler)
    causes = traceback.format_exception(refused.value)
    shown = [line for text in causes for line in text.splitlines() if " SECRET " not in line]
    assert not [line for line in shown if SECRET in line]
    assert SECRET not in f"{refused.value!r} {refused.value.facts}"
    assert SECRET not in log.getvalue()


def test_lineage_and_openlineage_hold_no_secret(tmp_path: Path) -> None:
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        table = catalog.create_table("d.t", KEYS, primary_key=["k"])
        inputs = [
            Input(dataset="s3://me:" + SECRET + "@bucket/a.csv?version=3"),
            Input(dataset="https://host/b?token=" + SECRET, version="s3://x?sig=" + SECRET),
        ]
        table.upsert([{"k": 1}], properties=provenance_properties(Run(run_id="r"), inputs))
        stored = json.dumps(dict(table.latest_snapshot().properties))
        assert "s3://me:***@bucket/a.csv?version=3" in stored
        events = json.dumps(list(run_events(catalog.lineage, namespace="n")), default=str)
        assert "bucket/a.csv" in events
    everything = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not [
        data for data in [*everything, stored.encode(), events.encode()] if SECRET.encode() in data
    ]


def test_a_catalog_does_not_show_the_secrets_of_its_warehouse(tmp_path: Path) -> None:
    with lsm.open_catalog(
        f"sqlite:///{tmp_path}/c.db", warehouse="s3://me:" + SECRET + "@b/w"
    ) as catalog:
        assert SECRET not in repr(catalog)


def test_run_config_names_the_variable_of_a_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "postgresql://me:" + SECRET + "@host/lake"
    monkeypatch.setenv("LSM_CATALOG_URL", url)
    settings = settings_from({"LSM_CATALOG_URL": url, "LSM_WAREHOUSE": str(tmp_path)})
    resource = resources_from(settings)["lsm"]
    config = resource.get_resource_definition().config_schema.default_value
    assert config == {
        "catalog_url": {"env": "LSM_CATALOG_URL"},
        **{k: config[k] for k in config if k != "catalog_url"},
    }
    assert SECRET not in f"{resource!r} {config}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://a:b@c/d", "s3://a:***@c/d"),
        ("s3://:b@c", "s3://:***@c"),
        ("x://h/p?a=1&secret_key=b;token=c#f", "x://h/p?a=1&secret_key=***;token=***#f"),
        ("two x://u:p@h and y://u:p@h", "two x://u:***@h and y://u:***@h"),
        ("x://host:80/p@q", "x://host:80/p@q"),
        ("x://u:p/w@h", "x://u:***@h"),
        ("x://u:p@w@h/d", "x://u:***@h/d"),
        ("a:b@c?token=d", "a:b@c?token=d"),
    ],
)
def test_only_secrets_are_hidden(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
    assert without_secrets(shown) == shown


def test_secrets_within_facts_are_hidden() -> None:
    url = "s3://me:a@" + SECRET + "@bucket"
    error = lsm.StorageError("no", files=[url], options={"warehouse": (url, 1)})
    assert SECRET not in f"{error} {error!r} {error.facts}"
    assert error.facts["options"] == {"warehouse": ("s3://me:***@bucket", 1)}
