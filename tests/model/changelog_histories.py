"""Random histories of tables with a changelog, which replayed must give the table.

The table is read by a scan, which other tests judge.
"""

import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lsm_engine.api.table import Table
from lsm_engine.ddl.create import create_table
from lsm_engine.options import core_options
from lsm_engine.storage.file_io import FileIO
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.model.changelog_replay import KINDS, Replay, Values
from tests.model.table_model import Key
from tests.model.world import components, reopen

INT, LONG, TEXT, DOUBLE = pa.int32(), pa.int64(), pa.string(), pa.float64()


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A merge engine on trial: columns beside the key `k`, options, and which rows it takes."""

    columns: dict[str, pa.DataType]
    options: dict[str, str] = field(default_factory=dict)
    kinds: tuple[str, ...] = KINDS
    producers: tuple[str, ...] = ("lookup", "full-compaction")
    vectors: bool = True
    # Deletes that nothing contradicts are forgotten sooner or later, and with them what they held
    # against late rows, and the values that they took back from nothing.
    has_twin: bool = True


PARTIAL = {"merge-engine": "partial-update"}
SUMS = {"merge-engine": "aggregation", "fields.s.aggregate-function": "sum"}
ENGINES = {
    "deduplicate": Engine(columns={"a": INT, "b": TEXT}),
    "deduplicate-sequence": Engine(
        columns={"t": INT, "b": TEXT}, options={"sequence.field": "t"}, kinds=("+I", "+U")
    ),
    "deduplicate-sequence-delete": Engine(
        columns={"t": INT, "b": TEXT}, options={"sequence.field": "t"}, has_twin=False
    ),
    "deduplicate-ignore-delete": Engine(columns={"a": INT}, options={"ignore-delete": "true"}),
    "partial-update": Engine(columns={"a": INT, "b": TEXT}, options=PARTIAL, kinds=("+I", "+U")),
    "partial-update-delete": Engine(
        columns={"a": INT, "b": TEXT},
        options=PARTIAL | {"partial-update.remove-record-on-delete": "true"},
    ),
    "sequence-groups": Engine(
        columns={"a": INT, "g": INT, "c": LONG, "h": INT, "e": TEXT},
        options=PARTIAL
        | {
            "fields.g.sequence-group": "a",
            "fields.h.sequence-group": "c",
            "fields.c.aggregate-function": "sum",
        },
        kinds=("+I", "+U"),
    ),
    "sequence-groups-delete": Engine(
        columns={"a": INT, "g": INT, "e": TEXT},
        options=PARTIAL
        | {
            "fields.g.sequence-group": "a",
            "partial-update.remove-record-on-sequence-group": "g",
        },
        has_twin=False,
    ),
    "aggregation": Engine(
        columns={"s": LONG, "a": INT, "x": TEXT},
        options=SUMS
        | {"fields.a.aggregate-function": "max", "fields.x.aggregate-function": "listagg"},
        kinds=("+I", "+U"),
    ),
    "aggregation-retract": Engine(
        columns={"s": LONG, "x": TEXT},
        options=SUMS | {"fields.x.aggregate-function": "last_value"},
        has_twin=False,
    ),
    "aggregation-delete": Engine(
        columns={"s": LONG},
        options=SUMS | {"aggregation.remove-record-on-delete": "true"},
        has_twin=False,
    ),
    "aggregation-sequence": Engine(
        columns={"s": LONG, "t": INT, "x": TEXT},
        options=SUMS | {"sequence.field": "t", "fields.x.aggregate-function": "last_value"},
        kinds=("+I", "+U"),
    ),
    "first-row": Engine(
        columns={"a": INT},
        options={"merge-engine": "first-row"},
        kinds=("+I", "+U"),
        producers=("lookup",),
        vectors=False,
    ),
    "first-row-ignore-delete": Engine(
        columns={"a": INT},
        options={"merge-engine": "first-row", "ignore-delete": "true"},
        producers=("lookup",),
        vectors=False,
    ),
}


class History:
    """One random history of one table."""

    def __init__(
        self,
        engine: Engine,
        options: dict[str, str],
        dice: random.Random,
        storage: FileIO | None = None,
    ) -> None:
        self.engine = engine
        self.dice = dice
        self.storage = storage or MemoryFileIO()
        self.schema = pa.schema(
            [
                pa.field("k", INT, nullable=False),
                *(pa.field(*each) for each in engine.columns.items()),
            ]
        )
        self.table = self._created(self.storage, engine.options | options)
        # The same rows without changelog and deletion vectors, merged by whoever reads them.
        first_row = engine.options.get("merge-engine") == "first-row"
        self.twin = self._created(
            MemoryFileIO(), engine.options | {"write-only": str(not first_row).lower()}
        )
        given = self.table.options
        self.producer = given[core_options.CHANGELOG_PRODUCER].value
        self.vectors = given[core_options.DELETION_VECTORS_ENABLED]
        self.replay = Replay(
            self.storage, deduplicates=given[core_options.CHANGELOG_ROW_DEDUPLICATE]
        )
        self.log: list[Any] = []

    def _created(self, storage: FileIO, options: dict[str, str]) -> Table:
        parts = components(storage)
        create_table(
            storage,
            self.schema,
            primary_key=("k",),
            partitioned_by=(),
            options={"bucket": "1"} | options,
            comment=None,
            clock=parts.clock,
        )
        return reopen(parts)

    def write(self, most: int = 8) -> None:
        rows = [self._row() for _ in range(self.dice.randint(1, most))]
        self.log.append(rows)
        names = self.schema.names
        table = pa.table({n: [row[n] for _, row in rows] for n in names}, schema=self.schema)
        table = table.append_column("_row_kind", pa.array([kind for kind, _ in rows]))
        self.table.upsert(table)
        self.twin.upsert(table)

    def compact(self, *, full: bool) -> None:
        self.log.append(f"compact full={full}")
        self.table.compact(full=full)

    def check(self) -> None:
        """What the changelog tells is what readers see, as far as it has got."""
        self.replay.follow()
        if self.is_told:
            seen = _by_key(self.table)
            assert self.producer == "none" or self.replay.rows == seen, self.log
            if self.engine.has_twin:
                assert seen == _by_key(self.twin), self.log

    @property
    def is_told(self) -> bool:
        """Whether the changelog knows of all that readers see."""
        latest = self.replay.stored.snapshots()
        if not latest:
            return True
        levels = {entry.level for entry in self.replay.stored.live(latest[max(latest)]).values()}
        if self.producer == "full-compaction":
            last = self.table.options.level_count - 1
            return levels <= {last}
        return 0 not in levels

    def _row(self) -> tuple[str, Values]:
        row: Values = {"k": self.dice.randrange(12)}
        for name, kind in self.engine.columns.items():
            value: Any = self.dice.randint(0, 4)
            if kind == TEXT:
                value = self.dice.choice("abc")
            row[name] = None if self.dice.random() < 0.25 else value
        return self.dice.choice(self.engine.kinds), row


def _by_key(table: Table) -> dict[Key, Values]:
    rows = table.scan().to_arrow().to_pylist()
    found = {(row["k"],): row for row in rows}
    assert len(found) == len(rows), "a key is read twice"
    return found


def options_of(
    engine: Engine, producer: str, dice: random.Random, *, vectors: bool
) -> dict[str, str]:
    """Options that may change cost, never content, beside the producer."""
    options = {
        "changelog-producer": producer,
        "num-sorted-run.compaction-trigger": str(dice.randint(2, 5)),
    }
    if vectors:
        options["deletion-vectors.enabled"] = "true"
        if dice.random() < 0.3:
            options["deletion-vectors.bitmap64"] = "true"
    for key, values in _CHOICES.items():
        if dice.random() < 0.3:
            options[key] = dice.choice(values)
    if producer in ("lookup", "full-compaction") and dice.random() < 0.4:
        options["changelog-producer.row-deduplicate"] = "true"
    return options


_CHOICES = {
    "write-only": ["true"],
    "target-file-size": ["1 kb", "3 kb"],
    "file.block-size": ["1 kb"],
    "sort-spill-threshold": ["2"],
    "sort-spill-buffer-size": ["1 kb"],
    "lookup-compact": ["gentle"],
    "lookup.local-file-type": ["sort", "hash"],
    "num-levels": ["3"],
    "full-compaction.delta-commits": ["1", "3"],
    "compaction.max-size-amplification-percent": ["0", "10000"],
    "compaction.size-ratio": ["0", "100"],
}


def combinations() -> list[tuple[str, str, bool]]:
    """Every engine, producer, and with or without deletion vectors, as far as they go together."""
    return [
        (name, producer, vectors)
        for name, engine in ENGINES.items()
        for producer in (*engine.producers, "none")
        for vectors in (False, True)
        if (engine.vectors and producer != "full-compaction") or not vectors
        if vectors or producer != "none"
    ]


def run_history(name: str, producer: str, seed: int, *, vectors: bool) -> History:
    """Run one history to its end."""
    dice = random.Random(f"{name} {producer} {vectors} {seed}")
    engine = ENGINES[name]
    history = History(engine, options_of(engine, producer, dice, vectors=vectors), dice)
    # The first one of each kind is for every run of the suite.
    for _ in range(dice.randint(2, 5) if seed == 0 else dice.randint(3, 14)):
        history.write(dice.choice([2, 8, 40]))
        history.check()
        if dice.random() < 0.35:
            history.compact(full=dice.random() < 0.4)
            history.check()
    history.compact(full=True)
    history.check()
    assert history.is_told
    assert not history.table.verify().problems, history.log
    return history
