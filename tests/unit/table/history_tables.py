"""Tables in memory, with a clock that is told the time, for tests of the life of their history."""

from typing import Any

import pyarrow as pa

import lsm_engine as lsm
from lsm_engine.ddl.create import create_table
from lsm_engine.ddl.open import load_schema
from lsm_engine.table.components import Components, LocalExecutor
from lsm_engine.table.session import TableSession
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.fault.doubles import ManualClock, NumberedIds

START = 1_700_000_000_000
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


class Story:
    """One table, its storage and its clock."""

    def __init__(
        self,
        columns: pa.Schema = COLUMNS,
        *,
        key: tuple[str, ...] = ("id",),
        partitioned_by: tuple[str, ...] = (),
        options: dict[str, str] | None = None,
    ) -> None:
        self.clock = ManualClock(START)
        self.disk = MemoryFileIO(clock=self.clock)
        self.parts = Components(
            file_io=self.disk,
            clock=self.clock,
            ids=NumberedIds(),
            executor=LocalExecutor(threads=1),
        )
        create_table(
            self.disk,
            columns,
            primary_key=key,
            partitioned_by=partitioned_by,
            options={"bucket": "1", "write-only": "true", **(options or {})},
            comment=None,
            clock=self.clock,
        )
        self.table = self.reopened()

    def reopened(self) -> lsm.Table:
        """The table as another process opens it."""
        schema = load_schema(self.disk, "t")
        return lsm.Table(TableSession("t", self.parts, schema), "t")

    def put(self, **values: Any) -> int:
        """Upsert rows such as k1="a", one second later; return the snapshot's id."""
        self.clock.advance(1000)
        rows = [{"id": int(key[1:]), "v": value} for key, value in values.items()]
        made = self.table.upsert(rows)
        assert made is not None
        return made.id

    def rows(self, **asked: Any) -> dict[int, str]:
        """What is read, by id."""
        found = self.reopened().scan(**asked).to_arrow().to_pylist()
        return {row["id"]: row["v"] for row in found}

    def files(self, directory: str = "") -> set[str]:
        """Every file there is below a directory."""
        return {path for path in self.disk._files if path.startswith(directory)}

    def check(self) -> None:
        """Nothing that a root names is missing, and nothing else is there."""
        table = self.reopened()
        assert table.verify().problems == ()
        assert table.remove_orphan_files(older_than="0 s", force=True).plan.orphans == ()
