"""Who takes part in the upsert workload, each in a virtual environment and a process of its own."""

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tests.interop import environments
from tests.interop.clients import Client, PypaimonClient, RustClient, UnsupportedByClient
from tests.interop.environments import Environment, made_once, make_virtual_environment

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# The drivers find what all drivers share there, and ours finds the engine of this very tree.
PYTHON_PATH = f"{Path(environments.__file__).parent}:{ROOT}"
REQUIREMENTS = {
    "lance": ("pylance==14.0.2", "pyarrow>=20,<27"),
    "deltalake": ("deltalake==1.6.6", "pyarrow>=20,<27"),
    "duckdb": ("duckdb==2.0.0", "pyarrow>=20,<27"),
    "pyiceberg": ("pyiceberg[sql-sqlite,pyarrow]==0.12.0",),
}


class Contender:
    """One engine with one table. ``spent`` tells what the last operation took."""

    def __init__(self, title: str, client: Client) -> None:
        self.title = title
        self.client = client

    def open(self, folder: Path, rows: Path, like: pa.Schema) -> None:
        """Start anew with an empty table in a folder, for rows of that file and schema."""
        raise NotImplementedError

    def upsert(self, rows: Path) -> None:
        """Upsert the rows of an Arrow file in one commit."""
        raise NotImplementedError

    def read(self) -> tuple[int, int]:
        """Read everything; the number of rows and the sum of ``a``."""
        raise NotImplementedError

    def compact(self) -> bool:
        """Compact as far as it goes; False when there is no such thing."""
        raise NotImplementedError

    def lookup(self, key: int) -> int:
        """How many rows a filter on the key finds."""
        raise NotImplementedError


class Driven(Contender):
    """A contender that a script of this folder drives."""

    def __init__(self, title: str, name: str, options: dict[str, str] | None = None) -> None:
        super().__init__(title, DrivenClient(name))
        self.options = options or {}

    def open(self, folder: Path, rows: Path, like: pa.Schema) -> None:
        self.client._call("open", folder=str(folder), rows=str(rows), options=self.options)

    def upsert(self, rows: Path) -> None:
        self.client._call("upsert", rows=str(rows))

    def delete(self, keys: Path) -> None:
        """Delete the rows whose keys are in an Arrow file; not every engine has a driver for it."""
        self.client._call("delete", rows=str(keys))

    def read(self) -> tuple[int, int]:
        count, total = self.client._call("read")
        return count, total

    def compact(self) -> bool:
        try:
            self.client._call("compact")
        except UnsupportedByClient:
            return False
        return True

    def lookup(self, key: int) -> int:
        return int(self.client._call("lookup", key=key))


class DrivenClient(Client):
    """The process of such a contender."""

    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc]
        super().__init__(timeout_seconds=3_600)

    def program(self) -> tuple[Environment, Path]:
        python = Path(sys.executable)
        if self.name in REQUIREMENTS:
            python = made(self.name) / "venv" / "bin" / "python"
        home = Environment(name=self.name, python=python, variables={"PYTHONPATH": PYTHON_PATH})
        return home, HERE / f"driver_{self.name}.py"


def made(name: str) -> Path:
    """The folder of a contender's environment, made now if it is not there."""
    requirements = REQUIREMENTS[name]
    facts: dict[str, Any] = {"requirements": list(requirements), "python": sys.version.split()[0]}
    return made_once(name, facts, lambda folder: make_virtual_environment(folder, requirements))


class PaimonContender(Contender):
    """A Paimon client, through the drivers of tests/interop."""

    def __init__(self, title: str, client: Client) -> None:
        super().__init__(title, client)
        client.timeout_seconds = 3_600

    def open(self, folder: Path, rows: Path, like: pa.Schema) -> None:
        self.path = self.client.create(
            folder, "bench.t", like, primary_key=["k"], options={"bucket": "1"}
        )

    def upsert(self, rows: Path) -> None:
        self.client._call("write", path=str(self.path), rows=str(rows), kinds=None, overwrite=None)

    def read(self) -> tuple[int, int]:
        rows = self.client.read(self.path)
        return rows.num_rows, pc.sum(rows["a"]).as_py()

    def compact(self) -> bool:
        return False

    def lookup(self, key: int) -> int:
        return int(self.client.read_filtered(self.path, "k", "=", key).table.num_rows)


OURS = "lsm_engine"


def contenders(chosen: list[str] | None = None) -> list[Contender]:
    """All of them, or those whose titles begin with one of the chosen words; ours always."""
    everyone = [
        Driven(OURS, "ours"),
        Driven(f"{OURS}, write-only", "ours", {"write-only": "true"}),
        PaimonContender("pypaimon-rust 0.4.0", RustClient()),
        Driven("lance 14.0.2", "lance"),
        Driven("deltalake 1.6.6", "deltalake"),
        Driven("duckdb 2.0.0", "duckdb"),
        PaimonContender("pypaimon 2.1.0", PypaimonClient()),
    ]
    wanted = tuple(chosen) if chosen is not None else ("",)
    return [one for one in everyone if one.title.startswith((OURS, *wanted))]
