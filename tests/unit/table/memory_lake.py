"""One table in memory, opened as often as there are writers."""

import pyarrow as pa

import lsm_engine as lsm
from lsm_engine.ddl.create import create_table
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.model.world import components, reopen

COLUMNS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])


class Lake:
    """A table of a key and a value in one bucket."""

    def __init__(self, **options: str) -> None:
        self.parts = components(MemoryFileIO())
        create_table(
            self.parts.file_io,
            COLUMNS,
            primary_key=("k",),
            partitioned_by=(),
            options={"bucket": "1", **options},
            comment=None,
            clock=self.parts.clock,
        )

    def open(self) -> lsm.Table:
        return reopen(self.parts)
