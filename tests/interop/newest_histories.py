"""Random histories of one table that Java and we write in turns: what it is, the next act, what must be equal."""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import lsm_engine as lsm
from lsm_engine.ddl.create import create_table
from lsm_engine.storage.clock import SystemClock
from lsm_engine.storage.warehouse import open_directory
from tests.interop.newest_java import NewestJava

ADDS, ALL = ("+I", "+U"), ("+I", "+U", "+I", "-U", "-D")
FIELDS = [
    pa.field("p", pa.int32()),
    pa.field("k", pa.int32()),
    pa.field("v", pa.int32()),
    pa.field("s", pa.string()),
    pa.field("g", pa.int32()),
]
PARTIAL, SUMS = {"merge-engine": "partial-update"}, {"merge-engine": "aggregation"}
FIRST = {"merge-engine": "first-row"}
GROUPS = PARTIAL | {"fields.g.sequence-group": "v,s"}
_LATER_COLUMN = "specified in 'file-index.<index-type>.columns' does not exist"
ENGINES: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "deduplicate": ({}, ALL),
    "deduplicate by clock": ({"sequence.field": "g"}, ALL),
    "deduplicate by clock, oldest": (
        {"sequence.field": "g", "sequence.field.sort-order": "descending"}, ALL
    ),
    "deduplicate, no deletes": ({"ignore-delete": "true"}, ALL),
    "partial-update": (PARTIAL, ADDS),
    "partial-update, no deletes": (PARTIAL | {"ignore-delete": "true"}, ALL),
    "groups": (GROUPS, ADDS),
    "sums": (SUMS | {"fields.v.aggregate-function": "sum",
                     "fields.s.aggregate-function": "last_non_null_value",
                     "fields.g.aggregate-function": "max"}, ADDS),
    "sums and retracts": (SUMS | {"fields.v.aggregate-function": "sum",
                                  "fields.s.aggregate-function": "last_value",
                                  "fields.g.aggregate-function": "max",
                                  "fields.g.ignore-retract": "true"}, ALL),
    "first-row": (FIRST, ("+I",)),
    "first-row, no deletes": (FIRST | {"ignore-delete": "true"}, ALL),
    "append": ({}, ("+I",)),
}  # fmt: skip


INDEXES = {
    "bloom-filter": ("v", "s", "g"), "bitmap": ("v", "s", "g"), "bsi": ("v", "g"),
    "range-bitmap": ("v", "s", "g"),
}  # fmt: skip
TYPES = {"INT": pa.int32(), "STRING": pa.string(), "DOUBLE": pa.float64(), "BOOLEAN": pa.bool_()}
"""Types of added columns."""
VALUES = {"INT": (None, 5), "STRING": (None, "w"), "DOUBLE": (None, 0.5), "BOOLEAN": (None, True)}


@dataclass(kw_only=True)
class Kind:
    """What a table is."""

    engine: str
    options: dict[str, str]
    kinds: tuple[str, ...]
    keys: tuple[str, ...]
    parts: tuple[str, ...]
    java_writes: bool = True


def drawn_indexes(draw: random.Random) -> dict[str, str]:
    """Options of the file indexes of a table: none for every second one."""
    if draw.random() < 0.5:
        return {}
    options = {"file-index.in-manifest-threshold": draw.choice(["1 b", "500 b", "1 mb"])}
    for kind, columns in INDEXES.items():
        indexed = [name for name in columns if draw.random() < 0.4]
        if indexed:
            options[f"file-index.{kind}.columns"] = ",".join(indexed)
            options |= {
                f"file-index.{kind}.{name}.items": "20" for name in indexed if "bloom" in kind
            }
    return options


def drawn(draw: random.Random, engine: str) -> Kind:
    """A table of an engine, all else by chance."""
    own, kinds = ENGINES[engine]
    parts = draw.choice([(), (), ("p",)])
    options = own | {
        "num-sorted-run.compaction-trigger": draw.choice(["2", "3", "5"]),
        "file.format": draw.choice(["parquet", "parquet", "avro", "orc"]),
        "write-only": draw.choice(["true", "false"]),
        "target-file-size": draw.choice(["128 mb", "2 kb"]),
        "snapshot.num-retained.max": "100",
        "metadata.stats-mode": draw.choice(["truncate(16)", "full", "none", "counts"]),
    }
    options |= drawn_indexes(draw)
    if engine == "append":
        bucket = draw.choice([{"bucket": "-1"}, {"bucket": "2", "bucket-key": "k"}])
        return Kind(engine=engine, options=options | bucket, kinds=kinds, keys=(), parts=parts)
    bucket = {"bucket": draw.choice(["1", "1", "2", "-1", "-2"])}
    first = "first-row" in engine
    producer = draw.choice(
        ["none", "lookup"] if first else ["none", "input", "lookup", "full-compaction"]
    )
    if bucket["bucket"] == "-1":
        bucket["dynamic-bucket.target-row-num"] = "4"
    if bucket["bucket"] == "-2":
        producer = "none"
    options |= bucket | {"changelog-producer": producer}
    if not first and producer != "full-compaction" and bucket["bucket"] != "-2":
        options["deletion-vectors.enabled"] = draw.choice(["true", "false"])
        options["deletion-vectors.bitmap64"] = draw.choice(["true", "false"])
    if first or producer == "lookup":
        options["write-only"] = "false"
    crosses = bool(parts) and bucket["bucket"] == "-1" and engine == "deduplicate"
    keys = ("k",) if not parts or (crosses and draw.random() < 0.5) else ("p", "k")
    return Kind(
        engine=engine, options=options, kinds=kinds, keys=keys, parts=parts,
        java_writes=not parts or "p" in keys,
    )  # fmt: skip


@dataclass(kw_only=True)
class History:
    """One table of ours, and the acts so far."""

    kind: Kind
    java: NewestJava
    draw: random.Random
    path: str
    columns: list[str] = field(default_factory=lambda: [one.name for one in FIELDS])
    types: dict[str, str] = field(default_factory=dict)
    """SQL types of the columns that were added."""
    there: set[tuple[int, int]] = field(default_factory=set)
    log: list[Any] = field(default_factory=list)

    @staticmethod
    def begin(folder: Path, java: NewestJava, draw: random.Random, engine: str) -> "History":
        """Create the table."""
        kind = drawn(draw, engine)
        # Retracts may leave nulls in what is no key.
        columns = [one.with_nullable(one.name not in (*kind.keys, *kind.parts)) for one in FIELDS]
        create_table(
            open_directory(str(folder)), pa.schema(columns), primary_key=kind.keys,
            partitioned_by=kind.parts, options=kind.options, comment=None, clock=SystemClock(),
        )  # fmt: skip
        made = History(kind=kind, java=java, draw=draw, path=str(folder))
        made.log.append(kind)
        return made

    @property
    def table(self) -> lsm.Table:
        """The table as it is now."""
        return lsm.open_table(self.path)

    def act(self) -> None:
        """Whatever comes next."""
        acts = ["write"] * 6 + ["compact", "compact fully", "tag", "untag", "expire"]
        acts += ["add", "rename", "drop", "widen", "index"]
        acts += ["rollback"] * (self.kind.options["bucket"] != "-2")
        acts += ["forget"] * bool(self.kind.keys)
        name = self.draw.choice(acts)
        ours = self.draw.random() < 0.5
        if name == "write" and not self.kind.java_writes:
            ours = True
        self.log.append((name, "we" if ours else "java"))
        if name.startswith("compact"):
            self._compact(ours, full="fully" in name)
        else:
            getattr(self, f"_{name}")(ours)

    def _write(self, ours: bool) -> None:
        rows = [self._row() for _ in range(self.draw.randint(1, 8))]
        self.log.append(rows)
        if not ours:
            self.java.ask("write", path=self.path, rows=rows)
            return
        named = [
            dict(zip(self.columns, values, strict=True)) | {"_row_kind": kind}
            for kind, values in rows
        ]
        if self.kind.keys:
            self.table.upsert(named)
        else:
            self.table.append([{n: v for n, v in row.items() if n != "_row_kind"} for row in named])

    def _forget(self, ours: bool) -> None:
        key = dict(
            zip(self.columns, (self.draw.randint(0, 1), self.draw.randint(0, 9)), strict=False)
        )
        named = {name: key[name] for name in self.kind.keys}
        report = self.table.forget(
            [named], dry_run=False, rewrite_tags=True, unreferenced_older_than="0 s"
        )
        assert report.is_clean, report

    def _row(self) -> tuple[str, list[Any]]:
        key = (self.draw.randint(0, 1), self.draw.randint(0, 9))
        kind = self.draw.choice(self.kind.kinds)
        if self.kind.engine == "sums and retracts" and key not in self.there:
            kind = "+I"
        if kind in ADDS:
            self.there.add(key)
        values = [*key, self.draw.choice([None, 1, 7, -3]), self.draw.choice([None, *"xyz"])]
        # No null clocks: what they decide depends on how Java's rows lie in files (decision 18).
        values.append(self.draw.randint(0, 5))
        values += [
            self.draw.choice(VALUES[self.types[name]]) for name in self.columns[len(FIELDS) :]
        ]
        return kind, values

    def _compact(self, ours: bool, *, full: bool) -> None:
        waits = self.kind.options["bucket"] == "-2"
        unaware = not self.kind.keys and self.kind.options["bucket"] == "-1"
        if ours or waits or unaware:  # Java compacts these in Flink and Spark alone
            self.table.compact(full=full)
        else:
            self.java.ask("compact", path=self.path, full=full)

    def _tag(self, ours: bool) -> None:
        newest, table = self.table.latest_snapshot(), self.table
        name = f"tag-{len(self.log)}"
        if newest is None:
            return
        if ours:
            table.create_tag(name, newest.id)
        else:
            self.java.ask("createTag", path=self.path, name=name, of=newest.id)

    def _untag(self, ours: bool) -> None:
        names = [tag.name for tag in self.table.tags()]
        if not names:
            return
        name = self.draw.choice(names)
        if ours:
            self.table.delete_tag(name)
        else:
            self.java.ask("deleteTag", path=self.path, name=name)

    def _expire(self, ours: bool) -> None:
        kept = self.draw.randint(2, 5)
        if ours:
            self.table.expire_snapshots(retain_min=1, retain_max=kept, older_than="0 s")
        else:
            self.java.ask("expire", path=self.path, max=kept)

    def _alter(self, ours: bool, our_change: Any, **javas_change: str) -> None:
        self.log.append(our_change)
        if ours:
            self.table.alter(our_change)
        else:
            self.java.ask("alter", path=self.path, **javas_change)

    def _add(self, ours: bool) -> None:
        name, kind = f"c{len(self.log)}", self.draw.choice(list(TYPES))
        change = lsm.AddColumn(name=name, type=TYPES[kind])
        self._alter(ours, change, change="add", name=name, type=kind)
        self.columns.append(name)
        self.types[name] = kind

    def _added(self) -> str | None:
        """An added column without an index."""
        names = [name for name in self.types if name not in self._indexed()]
        return self.draw.choice(names) if names else None

    def _indexed(self) -> set[str]:
        options = self.table.schema.options.texts
        return {
            name
            for key, value in options.items()
            if key.startswith("file-index.") and key.endswith(".columns")
            for name in value.split(",")
        }

    def _rename(self, ours: bool) -> None:
        if (name := self._added()) is None:
            return
        new_name = f"d{len(self.log)}"
        change = lsm.RenameColumn(name, new_name)
        self._alter(ours, change, change="rename", name=name, to=new_name)
        self.columns[self.columns.index(name)] = new_name
        self.types[new_name] = self.types.pop(name)

    def _drop(self, ours: bool) -> None:
        if (name := self._added()) is None:
            return
        self._alter(ours, lsm.DropColumn(name), change="drop", name=name)
        self.columns.remove(name)
        del self.types[name]

    def _widen(self, ours: bool) -> None:
        """Make the column v, which may have indexes, wider."""
        change = lsm.ChangeType("v", "BIGINT")
        self._alter(ours, change, change="type", name="v", type="BIGINT")

    def _index(self, ours: bool) -> None:
        """Give a living table an index of one more column."""
        kind = self.draw.choice(list(INDEXES))
        key = f"file-index.{kind}.columns"
        added = [name for name, sql_type in self.types.items() if sql_type == "INT"]
        name = self.draw.choice([*INDEXES[kind], *added])
        indexed = self.table.schema.options.texts.get(key, name).split(",")
        text = ",".join(dict.fromkeys([*indexed, name]))
        self._alter(ours, lsm.SetOption(key, text), change="option", name=key, to=text)

    def _rollback(self, ours: bool) -> None:
        ids = self.table.snapshot_ids()
        if len(ids) < 2:
            return
        to = self.draw.choice(ids[-3:])
        if ours:
            self.table.rollback_to(to)
        else:
            self.java.ask("rollback", path=self.path, to=to)

    # ---- what each reads

    def check(self) -> None:
        """Both read the same rows, of a value too, which indexes may find."""
        assert self.ours() == self.theirs(), self.log
        name, value = self.draw.choice([("v", 1), ("v", 7), ("s", "x"), ("g", 3)])
        matching = self.theirs(equal=[name, value])
        assert self.ours(where=lsm.col(name) == value) == matching, (name, value, self.log)

    def check_past(self) -> None:
        """Both read the same of every snapshot, tag and changelog, and nothing is damaged."""
        for number in self.table.snapshot_ids():
            self.compare_past(self.ours(snapshot_id=number), snapshot=number)
        for tag in self.table.tags():
            self.compare_past(self.ours(tag=tag.name), tag=tag.name)
        for snapshot in self.table.snapshots():
            if snapshot.changelog_manifest_list is not None:
                changes = self.our_changes(snapshot.id)
                assert changes == self.their_changes(snapshot.id), (snapshot.id, self.log)
        assert self.table.verify(deep=True).problems == (), self.log

    def compare_past(self, ours: list[Any], **where: Any) -> None:
        """Java reads the same of a snapshot or a tag, unless it refuses today's file indexes for the columns of then."""
        try:
            theirs = self.theirs(**where)
        except AssertionError as refusal:
            if _LATER_COLUMN not in str(refusal):
                raise
            return
        assert ours == theirs, (where, self.log)

    def ours(self, **where: Any) -> list[Any]:
        """Our rows, of the newest snapshot, another or a tag."""
        rows = self.table.scan(**where).to_arrow().to_pylist()
        return sorted(([*row.values()] for row in rows), key=repr)

    def theirs(self, **where: Any) -> list[Any]:
        """Java's."""
        return sorted(self.java.ask("read", path=self.path, **where), key=repr)

    def our_changes(self, number: int) -> list[Any]:
        """The changelog of one snapshot."""
        rows = self.table.changelog(number - 1, number, mode="changelog").to_pylist()
        for row in rows:
            del row["_snapshot_id"]
        return sorted(([row.pop("_row_kind"), [*row.values()]] for row in rows), key=repr)

    def their_changes(self, number: int) -> list[Any]:
        """The same as Java reads it."""
        return sorted(
            self.java.ask("changes", path=self.path, of=number, mode="CHANGELOG"), key=repr
        )
