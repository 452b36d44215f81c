"""Drives Lance as one of the contenders of upserts.py."""

import driver_protocol as protocol
import lance
import pyarrow as pa
import pyarrow.compute as pc


class LanceDriver:
    """One data set in a folder."""

    def do_open(self, folder, rows, options):
        """Remember where; the first rows create it."""
        self.folder = folder
        self.data = None

    def do_upsert(self, rows):
        """Merge rows in by key."""
        given = protocol.load_table(
            rows
        )  # stops the meter by itself: within another stop it would count twice
        with protocol.METER.stopped():
            given = aligned(given)
        if self.data is None:
            self.data = lance.write_dataset(given, self.folder)
            return
        merge = self.data.merge_insert("k").when_matched_update_all()
        merge.when_not_matched_insert_all().execute(given)

    def do_delete(self, rows):
        """Delete the rows of these keys."""
        keys = protocol.load_table(rows)
        self.data.merge_insert("k").when_matched_delete().execute(keys)

    def do_read(self):
        """Read all of it; how many rows, and the sum of the column that decides who won."""
        rows = self.data.to_table()
        return [rows.num_rows, pc.sum(rows["a"]).as_py()]

    def do_compact(self):
        """Compact all fragments."""
        self.data.optimize.compact_files()

    def do_lookup(self, key):
        """Rows with that key."""
        return self.data.to_table(filter=f"k = {key}").num_rows


def aligned(rows):
    """The rows in buffers of Arrow's own making: it panics on decimals at odd places in a file."""
    return rows.take(pa.array(range(rows.num_rows), pa.int64()))


if __name__ == "__main__":
    protocol.serve(LanceDriver())
