"""pypaimon 2.1.0 on an object store: `store_worker_pypaimon.py OPTIONS ACTION TABLE`; rows come and go as JSON.

Read: one list of rows for the newest state, or that of a tag. Write: a table is made of the rows on standard input.
"""

import json
import sys

import pyarrow as pa
from pypaimon import CatalogFactory, Schema


def main(options, action, name, tag=None):
    """Carry out one action on one table."""
    catalog = CatalogFactory.create(json.loads(options))
    if action == "write":
        rows = pa.Table.from_pylist(json.load(sys.stdin))
        catalog.create_database(name.partition(".")[0], True)
        made = {"bucket": "1"}
        catalog.create_table(
            name, Schema.from_pyarrow_schema(rows.schema, primary_keys=["k"], options=made), False
        )
        for start in (0, rows.num_rows // 2):
            builder = catalog.get_table(name).new_batch_write_builder()
            write, commit = builder.new_write(), builder.new_commit()
            write.write_arrow(rows.slice(start))
            commit.commit(write.prepare_commit())
            write.close()
            commit.close()
        return
    table = catalog.get_table(name)
    if tag is not None:
        table = table.copy({"scan.tag-name": tag})
    builder = table.new_read_builder()
    found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    print(json.dumps(found.to_pylist()))


if __name__ == "__main__":
    main(*sys.argv[1:])
