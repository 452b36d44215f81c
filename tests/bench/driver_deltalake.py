"""Drives delta-rs as one of the contenders of upserts.py."""

import driver_protocol as protocol
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder, write_deltalake


class DeltaDriver:
    """One table in a folder."""

    def do_open(self, folder, rows, options):
        """Remember where; the first rows create it."""
        self.folder = folder
        self.is_new = True

    def do_upsert(self, rows):
        """Merge rows in by key."""
        given = protocol.load_table(rows)
        if self.is_new:
            write_deltalake(self.folder, given)
            self.is_new = False
            return
        self._merge(given).when_matched_update_all().when_not_matched_insert_all().execute()

    def do_delete(self, rows):
        """Delete the rows of these keys."""
        self._merge(protocol.load_table(rows)).when_matched_delete().execute()

    def _merge(self, given):
        return DeltaTable(self.folder).merge(
            given, predicate="t.k = s.k", source_alias="s", target_alias="t"
        )

    def do_read(self):
        """Read all of it; how many rows, and the sum of the column that decides who won."""
        rows = DeltaTable(self.folder).to_pyarrow_table()
        return [rows.num_rows, pc.sum(rows["a"]).as_py()]

    def do_compact(self):
        """Bring small files together; MERGE has already rewritten what it touched."""
        DeltaTable(self.folder).optimize.compact()

    def do_lookup(self, key):
        """Rows with that key."""
        query = QueryBuilder().register("t", DeltaTable(self.folder))
        return pa.table(query.execute(f"SELECT * FROM t WHERE k = {key}")).num_rows


if __name__ == "__main__":
    protocol.serve(DeltaDriver())
