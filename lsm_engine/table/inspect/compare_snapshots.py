"""The difference of two snapshots of a table: files added, removed, and moved to another level."""

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.record import record
from lsm_engine.base.units import counted, format_bytes
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.inspect.system_tables_files import FILE_KEY_RANGES, file_key_ranges

_PATH = "file_path"


@record
class SnapshotDiff:
    """The second snapshot seen from the first. Tables have the columns of `file_key_ranges`.

    `moved`: files of both that lie on another level in the second, as it has them. Rows are counted
    as files hold them, before merging.
    """

    first_id: int
    second_id: int
    added: pa.Table
    removed: pa.Table
    moved: pa.Table

    @property
    def row_change(self) -> int:
        """Rows in files that came less rows in files that went."""
        return _sum(self.added, "record_count") - _sum(self.removed, "record_count")

    @property
    def byte_change(self) -> int:
        """Bytes that came less bytes that went."""
        return _sum(self.added, "file_size_in_bytes") - _sum(self.removed, "file_size_in_bytes")

    def by_level(self) -> list[tuple[int, int, int, int]]:
        """Return, per level: (level, files added, files removed, change of bytes)."""
        levels = {
            level
            for rows in (self.added, self.removed)
            for level in rows.column("level").to_pylist()
        }
        return [
            (level, added.num_rows, removed.num_rows, _size(added) - _size(removed))
            for level in sorted(levels)
            for added, removed in [(_on_level(self.added, level), _on_level(self.removed, level))]
        ]

    def partitions(self) -> list[str]:
        """Return the partitions that files came to or went from."""
        names = {
            name
            for rows in (self.added, self.removed)
            for name in rows.column("partition").to_pylist()
        }
        return sorted(names)

    def text(self) -> str:
        """Render for people."""
        lines = [
            f"from snapshot {self.first_id} to {self.second_id}: {counted(self.added.num_rows, 'file')} came, "
            f"{self.removed.num_rows} went, {self.moved.num_rows} changed their level; "
            f"{self.row_change:+,} rows in files"
        ]
        lines += [
            f"  level {level}: +{added} -{removed} files, {'-' if size < 0 else '+'}"
            f"{format_bytes(abs(size))}"
            for level, added, removed, size in self.by_level()
        ]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()


def compare(session: TableSession, first: Snapshot | None, second: Snapshot) -> SnapshotDiff:
    """Compare two snapshots; `first` None: nothing at all, as before the first commit."""
    before = FILE_KEY_RANGES.empty_table() if first is None else file_key_ranges(session, first)
    after = file_key_ranges(session, second)
    stayed = after.filter(pc.is_in(after.column(_PATH), value_set=_set(before.column(_PATH))))
    levels = dict(
        zip(before.column(_PATH).to_pylist(), before.column("level").to_pylist(), strict=True)
    )
    moved = [
        levels[path] != level
        for path, level in zip(
            stayed.column(_PATH).to_pylist(), stayed.column("level").to_pylist(), strict=True
        )
    ]
    return SnapshotDiff(
        first_id=0 if first is None else first.id,
        second_id=second.id,
        added=_without(after, before),
        removed=_without(before, after),
        moved=stayed.filter(pa.array(moved, pa.bool_())),
    )


def _set(column: pa.ChunkedArray) -> pa.Array:
    return pa.array(column.to_pylist(), pa.string())


def _without(rows: pa.Table, other_rows: pa.Table) -> pa.Table:
    is_other = pc.is_in(rows.column(_PATH), value_set=_set(other_rows.column(_PATH)))
    return rows.filter(pc.invert(is_other))


def _on_level(rows: pa.Table, level: int) -> pa.Table:
    return rows.filter(pc.equal(rows.column("level"), level))


def _sum(rows: pa.Table, name: str) -> int:
    return int(pc.sum(rows.column(name)).as_py() or 0)


def _size(rows: pa.Table) -> int:
    return _sum(rows, "file_size_in_bytes")
