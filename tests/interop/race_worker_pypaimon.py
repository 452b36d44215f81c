"""One racer of race_pypaimon.py: K commits of one row each; prints every key that was acknowledged."""

import os
import sys
import time

import pyarrow as pa
from pypaimon.table.file_store_table import FileStoreTable

path, gate, first, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
table = FileStoreTable.from_path(path)
print("ready", flush=True)
while not os.path.exists(gate):
    time.sleep(0.001)
for key in range(first, first + count):
    builder = table.new_batch_write_builder()
    write, commit = builder.new_write(), builder.new_commit()
    try:
        write.write_arrow(
            pa.table({"k": [key], "v": [str(key)]}, schema=write.table_pyarrow_schema)
        )
        commit.commit(write.prepare_commit())
        print("acknowledged", key, flush=True)
    except Exception as error:  # noqa: BLE001 - counted, whatever it is
        print("failed", key, type(error).__name__, error, flush=True)
    finally:
        write.close()
        commit.close()
