"""A small shop on disk, and `lsm` run in this process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import lsm_engine as engine
from lsm_engine.cli.main import lsm

COLUMNS = pa.schema(
    [
        ("order_id", pa.int64()),
        ("day", pa.string()),
        ("customer", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("paid_at", pa.timestamp("ms")),
    ]
)


class Shell:
    """`lsm` in a directory of its own. Calling it runs a command line and checks its exit code."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.warehouse = directory / "lake"
        self.environment = {
            "LSM_WAREHOUSE": str(self.warehouse),
            "LSM_CATALOG": None,
            "LSM_CATALOG_URL": None,
            "NO_COLOR": None,
            "FORCE_COLOR": None,
        }

    def __call__(
        self, *arguments: object, code: int | tuple[int, ...] = 0, input: Any = None
    ) -> Result:
        words = [str(argument) for argument in arguments]
        result = CliRunner().invoke(lsm, words, input=input, env=self.environment)
        codes = code if isinstance(code, tuple) else (code,)
        assert result.exit_code in codes, (words, result.exit_code, result.output)
        assert "Traceback" not in result.output
        return result

    def json(self, *arguments: object, code: int | tuple[int, ...] = 0) -> list[Any]:
        """The JSON lines that a command prints."""
        output = self(*arguments, "--json", code=code).stdout
        return [json.loads(line) for line in output.splitlines()]

    def catalog(self) -> engine.Catalog:
        return engine.open_catalog(
            f"sqlite:///{self.warehouse}/catalog.db", warehouse=str(self.warehouse)
        )

    def file(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text)
        return path


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def shop(shell: Shell) -> Shell:
    """shop.orders with three snapshots: two rows, one of them changed, a third one added."""
    with shell.catalog() as catalog:
        table = catalog.create_table(
            "shop.orders",
            COLUMNS,
            primary_key=["order_id", "day"],
            partitioned_by=["day"],
            options={"bucket": "1"},
        )
        table.upsert(rows((1, "mon", "Ada", "12.50"), (2, "mon", "Bo", "7.00")))
        table.upsert(rows((2, "mon", "Bo", "8.25")))
        table.upsert(rows((3, "tue", None, "100.10")))
    return shell


def rows(*values: tuple[int, str, str | None, str]) -> pa.Table:
    columns = list(zip(*values, strict=True))
    return pa.table(
        {
            "order_id": pa.array(columns[0], pa.int64()),
            "day": pa.array(columns[1]),
            "customer": pa.array(columns[2], pa.string()),
            "price": pa.array(columns[3]).cast(pa.decimal128(10, 2)),
        }
    )


Answer = Callable[..., Result]
