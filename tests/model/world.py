"""A table under test beside its model: one place that knows how to drive the engine."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from lsm_engine.api.table import Table
from lsm_engine.base.errors import InvalidInputError
from lsm_engine.ddl.create import create_table
from lsm_engine.ddl.open import load_schema
from lsm_engine.storage.clock import IdSource
from lsm_engine.storage.file_io import FileIO
from lsm_engine.table.components import Components, LocalExecutor
from lsm_engine.table.session import TableSession
from tests.fault.doubles import ManualClock, NumberedIds
from tests.fault.recording_file_io import Call, RecordingFileIO
from tests.model.changelog_replay import Replay
from tests.model.column_kinds import Plain, to_rows
from tests.model.invariants import check_invariants
from tests.model.stored_table import StoredTable
from tests.model.strategies import Layout, arrow_keys, arrow_rows, arrow_schema
from tests.model.table_model import DELETE, Key, Row, Shape, TableModel

START_MILLIS = 1_700_000_000_000
AHEAD = 1_000
"""More than the rows of any batch."""


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Let every table work on one thread: histories and numbered calls repeat from run to run."""

    def of_one(self: LocalExecutor, threads: int | None = None) -> None:
        del threads
        self.threads = 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalExecutor, "__init__", of_one)
        yield


def components(
    storage: FileIO, clock: ManualClock | None = None, ids: IdSource | None = None
) -> Components:
    """What a table in a test runs with: nothing that differs from run to run."""
    return Components(
        file_io=storage,
        clock=clock or ManualClock(START_MILLIS),
        ids=ids or NumberedIds(),
        executor=LocalExecutor(threads=1),
    )


def create(shape: Shape, layout: Layout, parts: Components) -> Table:
    """Create a table at the root of a storage, and open it."""
    options = layout.texts() | dict(shape.merge_options)
    if shape.sequence:
        options["sequence.field"] = ",".join(shape.sequence)
        if shape.sequence_descending:
            options["sequence.field.sort-order"] = "descending"
    create_table(
        parts.file_io,
        arrow_schema(shape),
        primary_key=shape.primary_key,
        partitioned_by=shape.partitioned_by,
        options=options,
        comment=None,
        clock=parts.clock,
    )
    return reopen(parts)


def reopen(parts: Components) -> Table:
    """Open the table at the root of a storage, as another process would."""
    return Table(TableSession("t", parts, load_schema(parts.file_io, "t")), "t")


def read(table: Table, shape: Shape, **options: Any) -> dict[Key, Row]:
    """A read as a dictionary; asserts that no key comes twice."""
    return by_key(shape, table.scan(**options).to_arrow())


def by_key(shape: Shape, table: pa.Table) -> dict[Key, Row]:
    """Rows by key; asserts that no key comes twice."""
    rows = to_rows(table, shape.names)
    found = {shape.key_of(row): row for row in rows}
    assert len(found) == len(rows), f"a key was read twice: {[shape.key_of(row) for row in rows]}"
    return found


class World:
    """A table, its files and its model, changed together and compared after every step."""

    def __init__(self, shape: Shape, layout: Layout, inner: FileIO) -> None:
        self.shape = shape
        self.layout = layout
        self.inner = inner
        self._risen = 0
        self._intruder: Callable[[], None] | None = None
        self._intrudes_at = ""
        self.clock = ManualClock(START_MILLIS)
        self.ids = NumberedIds()
        self.storage = RecordingFileIO(inner, on_call=self._on_call)
        self.parts = components(self.storage, self.clock, self.ids)
        self.table = create(shape, layout, self.parts)
        self.model = TableModel(shape)
        self.stored = StoredTable(inner)
        self._producer = dict(layout.options).get("changelog-producer")
        self._replay = Replay(inner, shape.primary_key, strict=self._producer != "input")

    # Steps.

    def upsert(self, rows: Sequence[tuple[str, Row]]) -> None:
        rows = self._taken(rows)
        self.table.upsert(arrow_rows(self.shape, list(rows)))
        self.model.write(rows)

    def delete(self, keys: Sequence[Key]) -> None:
        if DELETE in self.shape.merge.refused:
            with pytest.raises(InvalidInputError):
                self.table.delete(arrow_keys(self.shape, list(keys)))
            return
        shape = self.shape
        rows = [self.key_row(key) for key in keys]
        if shape.sequence and (
            shape.engine == "deduplicate" or getattr(shape.merge, "removes", False)
        ):  # a -D is as new as the row that it takes away
            there = by_key(shape, self.table.to_arrow())
            rows = [there[key] for key in dict.fromkeys(keys) if key in there]
        self.table.delete(arrow_keys(shape, list(keys)))
        self.model.write([(DELETE, row) for row in rows])

    def overwrite(
        self, rows: Sequence[tuple[str, Row]], partition: Mapping[str, Plain] | None
    ) -> None:
        """Replace one partition, the partitions of the rows, or everything."""
        rows = self._taken(rows)
        arrow = arrow_rows(self.shape, list(rows))
        spec = None if partition is None else self.partition_spec(partition)
        self.table.overwrite(arrow, spec)
        touched = {
            self.shape.partition_of_key(self.shape.key_of(row))
            for kind, row in rows
            if kind not in self.shape.merge.ignored
        }
        whole = not self.shape.partitioned_by
        if partition is not None:
            chosen = dict(partition)
            self.model.overwrite(
                rows,
                lambda values: all(
                    values[self.shape.partitioned_by.index(name)] == value
                    for name, value in chosen.items()
                ),
            )
        else:
            self.model.overwrite(rows, lambda values: whole or values in touched)

    def compact(self, **where: Any) -> None:
        self.table.compact(**where)
        self.model.compact()

    def create_tag(self, name: str, snapshot_id: int | None = None) -> None:
        self.table.create_tag(name, snapshot_id)
        number = snapshot_id or max(self.model.snapshots)
        self.model.tags[name] = self.model.snapshots[number]

    def delete_tag(self, name: str) -> None:
        self.table.delete_tag(name)
        del self.model.tags[name]

    def reopen(self) -> None:
        self.table = reopen(self.parts)

    def _taken(self, rows: Sequence[tuple[str, Row]]) -> list[tuple[str, Row]]:
        """Rows as far as the merge engine takes them."""
        shape = self.shape
        taken = [("+U" if kind in shape.merge.refused else kind, row) for kind, row in rows]
        if not shape.rises:
            return taken
        place = shape.names.index(shape.sequence[0])
        sign = -1 if shape.sequence_descending else 1
        # Whoever acts before our commit brings older rows.
        ahead = 0 if self._intruder is None else AHEAD
        risen = []
        for kind, row in taken:
            self._risen += 1
            number = sign * ((self._risen + ahead) // 2)  # two rows tie
            risen.append((kind, (*row[:place], number, *row[place + 1 :])))
        return risen

    def key_row(self, key: Key) -> Row:
        """A row that names a key and nothing else."""
        values = dict(zip(self.shape.primary_key, key, strict=True))
        return tuple(values.get(name) for name in self.shape.names)

    def partition_spec(self, partition: Mapping[str, Plain]) -> dict[str, object]:
        """A partition as users name it: values as Arrow gives them."""
        table = arrow_rows(self.shape, [(DELETE, self._row_with(partition))])
        return {name: table.column(name)[0].as_py() for name in partition}

    def _row_with(self, values: Mapping[str, Plain]) -> Row:
        return tuple(values.get(name) for name in self.shape.names)

    # Comparing.

    def settle(self) -> None:
        """Compare the newest snapshot with the model, and record the snapshots that were made."""
        made = [one for one in self.table.snapshots() if one.id not in self.model.snapshots]
        for snapshot in made:
            if snapshot.commit_kind.value == "COMPACT":
                self.model.compact()
        seen = read(self.table, self.shape)
        self.model.observe(seen)
        before = self.model.rows
        for snapshot in made:
            # Compactions of the same step follow the commit whose rows they merge.
            is_first_compaction = snapshot.commit_kind.value == "COMPACT" and snapshot is made[0]
            # One that forgets a delete may show a row that came meanwhile and sorts before it.
            may_show = bool(self.shape.sequence) and snapshot is made[-1]
            rows = before if is_first_compaction and not may_show else seen
            if snapshot is not made[-1]:
                found = read(self.table, self.shape, snapshot_id=snapshot.id)
                # What a compaction has not reached is not seen yet.
                rows = found if self.layout.hides_new_rows(self.shape) else rows
                assert found == rows, snapshot.id
            self.model.record(snapshot.id, snapshot.time_millis, snapshot.commit_kind.value, rows)
        assert seen == self.model.rows, "rows changed without a snapshot"
        if self._producer is not None and not self._tells_input_only:
            self._follow(seen)

    @property
    def _tells_input_only(self) -> bool:
        """Whether changes are told as they came, which what follows them has to merge as well."""
        plain = self.shape.engine == "deduplicate" and not self.shape.sequence
        return self._producer == "input" and not plain

    def _follow(self, seen: Mapping[Key, Row]) -> None:
        """Compare what the changelog tells with a read, where it knows of all that was written."""
        self._replay.follow()
        untold = self._untold_partitions()
        told = {
            key: tuple(row[name] for name in self.shape.names)
            for key, row in self._replay.rows.items()
            if self.shape.partition_of_key(key) not in untold
        }
        expected = {
            key: row for key, row in seen.items() if self.shape.partition_of_key(key) not in untold
        }
        assert told == expected, "the changelog tells another table"

    def _untold_partitions(self) -> set[tuple[Plain, ...]]:
        """Partitions with rows that no changelog tells yet: what is in level 0, or above the last."""
        snapshots = self.stored.snapshots()
        if not snapshots or self._producer == "input":
            return set()
        last = self.table.options.level_count - 1
        return {
            self.stored.partition(entry.partition, self.stored.schema_of(entry))
            for entry in self.stored.live(snapshots[max(snapshots)]).values()
            if entry.level == 0 or (self._producer == "full-compaction" and entry.level < last)
        }

    def check(self) -> None:
        """The files are sound, and what the engine lists is what the model knows."""
        check_invariants(self.stored)
        assert [one.id for one in self.table.snapshots()] == sorted(self.model.snapshots)
        assert {one.name: one.snapshot.id for one in self.table.tags()} == {
            name: moment.id for name, moment in self.model.tags.items()
        }

    # A second writer.

    @contextmanager
    def intruder(self, act: Callable[[], None], verb: str = "publish") -> Any:
        """Let somebody else act just before our next call of `verb`, with a table of their own."""
        self._intruder, self._intrudes_at = act, verb
        try:
            yield
        finally:
            self._intruder = None
            self._risen += 2 * AHEAD

    def _on_call(self, call: Call) -> None:
        if self._intruder is not None and call.verb == self._intrudes_at:
            act, self._intruder = self._intruder, None
            act()
