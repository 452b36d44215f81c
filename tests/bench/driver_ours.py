"""Drives this engine as one of the contenders of upserts.py, in a process of its own."""

from pathlib import Path

import driver_protocol as protocol
import pyarrow.compute as pc

import lsm_engine as lsm


class OursDriver:
    """One table in a folder."""

    def do_open(self, folder, rows, options):
        """Create the table for rows like these."""
        Path(folder).mkdir(parents=True)
        catalog = lsm.open_catalog(f"sqlite:///{folder}/catalog.db", warehouse=folder)
        schema = protocol.load_table(rows).schema
        self.table = catalog.create_table("bench.t", schema, primary_key=["k"], options=options)

    def do_reopen(self, path):
        """Take a table that is there."""
        self.table = lsm.open_table(path)

    def do_upsert(self, rows):
        """Upsert rows in one commit."""
        self.table.upsert(protocol.load_table(rows))

    def do_delete(self, rows):
        """Delete the rows of these keys in one commit."""
        self.table.delete(protocol.load_table(rows))

    def do_read(self):
        """Read all of it; how many rows, and the sum of the column that decides who won."""
        rows = self.table.scan().to_arrow()
        return [rows.num_rows, pc.sum(rows["a"]).as_py()]

    def do_compact(self):
        """Compact wholly."""
        self.table.compact(full=True)

    def do_lookup(self, key):
        """Rows with that key."""
        return self.table.scan(where=pc.field("k") == key).to_arrow().num_rows


if __name__ == "__main__":
    protocol.serve(OursDriver())
