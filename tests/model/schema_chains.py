"""Tables whose columns change under their rows, beside a model that knows columns by number.

The model's rows are dictionaries by a column's own number, so that names, places and types are looked
up in its present list of columns alone. Values change with the type, once, when the type does.
"""

import datetime as dt
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import lsm_engine as lsm
from lsm_engine.ddl.create import create_table
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.model.world import components, reopen

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 -- wall clocks have no zone
DAY = dt.date(1970, 1, 1)
TYPES: dict[str, tuple[Callable[[int], Any], tuple[str, ...]]] = {
    # How the n-th value looks, and which types a column may get next.
    "TINYINT": (lambda n: n - 2, ("SMALLINT", "INT", "BIGINT", "DOUBLE", "STRING")),
    "SMALLINT": (lambda n: 300 * n, ("INT", "BIGINT", "DOUBLE")),
    "INT": (lambda n: n - 2, ("BIGINT", "DOUBLE", "DECIMAL(12, 2)", "STRING")),
    "BIGINT": (lambda n: n * 10**10, ("STRING", "DECIMAL(21, 2)")),
    "FLOAT": (lambda n: n / 2, ("DOUBLE",)),
    "DOUBLE": (lambda n: -n / 4, ()),
    "DECIMAL(12, 2)": (lambda n: Decimal(n).scaleb(-2), ("DECIMAL(21, 2)", "DECIMAL(30, 4)")),
    "DECIMAL(21, 2)": (lambda n: Decimal(n * 10**15).scaleb(-2), ("DECIMAL(30, 4)",)),
    "DECIMAL(30, 4)": (lambda n: Decimal(n).scaleb(-4), ()),
    "BOOLEAN": (lambda n: n % 2 == 0, ("STRING",)),
    "DATE": (lambda n: DAY + dt.timedelta(days=n - 2), ("TIMESTAMP(6)", "STRING")),
    "TIMESTAMP(3)": (lambda n: EPOCH + n * dt.timedelta(milliseconds=7), ("TIMESTAMP(6)",)),
    "TIMESTAMP(6)": (lambda n: EPOCH + n * dt.timedelta(microseconds=3), ()),
    "VARCHAR(5)": (lambda n: "vwxyz"[:n], ("VARCHAR(9)", "STRING")),
    "VARCHAR(9)": (lambda n: "w" * n, ("STRING",)),
    "STRING": (lambda n: f"text {n}" * n, ()),
    "VARBINARY(5)": (lambda n: b"\0" * n, ("BYTES",)),
    "BYTES": (lambda n: b"\xff" * n, ()),
}
KINDS = tuple(TYPES)
OPTIONS: tuple[dict[str, str], ...] = (
    {},
    {"merge-engine": "partial-update"},
    {"changelog-producer": "lookup"},
    {"deletion-vectors.enabled": "true"},
    {"merge-engine": "partial-update", "changelog-producer": "lookup"},
    {"changelog-producer": "full-compaction"},
)
FORMATS = ("parquet", "orc", "avro")


@dataclass
class Column:
    """A column, or a field of a structure. `fields`: None, or it is a structure."""

    number: int
    name: str
    kind: str
    fields: "list[Column] | None" = None
    required: bool = False
    default: int | None = None

    def value(self, n: int) -> Any:
        """The n-th value of its kind, as the model keeps it."""
        if self.fields is None:
            return TYPES[self.kind][0](n)
        return {each.number: each.value((n + at) % 5) for at, each in enumerate(self.fields)}

    def shown(self, value: Any) -> Any:
        """A value as a read gives it: fields that came later are null."""
        if self.fields is None or value is None:
            return value
        return {each.name: each.shown(value.get(each.number)) for each in self.fields}


def converted(value: Any, target: str) -> Any:
    """An old value as its column's new type says it."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case int() if target == "DOUBLE":
            return float(value)
        case int() | Decimal() if target.startswith("DECIMAL"):
            scale = int(target[:-1].split(",")[1])
            return Decimal(value).quantize(Decimal(1).scaleb(-scale))
        case dt.date() if target.startswith("TIMESTAMP") and not isinstance(value, dt.datetime):
            return dt.datetime.combine(value, dt.time())
        case int() | dt.date() if target == "STRING":
            return str(value)
        case _:
            return value


@dataclass
class ChangingTable:
    """A table, and what it should hold."""

    dice: random.Random
    options: dict[str, str]
    rows: dict[int, dict[int, Any]] = field(default_factory=dict)
    key: str = "k"
    log: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers = 10
        self._past: dict[int, tuple[str, list[dict[str, Any]]]] = {}
        changing = self.dice.choice(KINDS)
        self.columns = [
            Column(0, "a", "INT", required=True),
            Column(1, "b", "STRING"),
            Column(2, "r", "", [Column(3, "x", "INT"), Column(4, "y", "STRING")]),
            Column(5, "c", changing),
        ]
        self.gone: list[str] = []
        parts = components(MemoryFileIO())
        nested = pa.struct([("x", pa.int32()), ("y", pa.string())])
        columns = [
            pa.field("k", pa.int64(), nullable=False),
            pa.field("a", pa.int32(), nullable=False),
            pa.field("b", pa.string()),
            pa.field("r", nested),
        ]
        create_table(
            parts.file_io,
            pa.schema(columns),
            primary_key=("k",),
            partitioned_by=(),
            options={"bucket": "1"} | self.options,
            comment=None,
            clock=parts.clock,
        )
        self.parts = parts
        self.table = reopen(parts)
        self.alter(lsm.AddColumn(name="c", type=changing))

    @property
    def merges(self) -> bool:
        """Whether a null leaves a column as it was."""
        return "merge-engine" in self.options

    def number(self) -> int:
        """A number that no column has had."""
        self._numbers += 1
        return self._numbers

    def alter(self, *changes: Any) -> None:
        """Change the schema, and read it again as somebody else would."""
        self.log.append(changes)
        self.table.alter(*changes)
        self.table = reopen(self.parts)

    # --- rows --------------------------------------------------------------------------------

    def write(self) -> None:
        """Upsert a few rows, and sometimes leave columns out."""
        given = [each for each in self.columns if each.required or self.dice.random() < 0.9]
        shown = []
        for key in self.dice.sample(range(8), self.dice.randint(1, 5)):
            row = {each.number: self._drawn(each) for each in given}
            shown.append({self.key: key} | {c.name: c.shown(row[c.number]) for c in given})
            for each in self.columns:
                if row.get(each.number) is None and each.default is not None:
                    row[each.number] = each.value(each.default)
            before = self.rows.get(key, {}) if self.merges else {}
            self.rows[key] = before | {at: value for at, value in row.items() if value is not None}
        self.log.append(shown)
        arrow = self.table.schema.arrow
        schema = pa.schema([arrow.field(name) for name in (self.key, *(c.name for c in given))])
        self.table.upsert(pa.Table.from_pylist(shown, schema=schema))
        self._remember()

    def compact(self) -> None:
        """Merge what there is, or what is due."""
        full = self.dice.random() < 0.6
        self.log.append(f"compact full={full}")
        self.table.compact(full=full)
        self._remember()

    def _drawn(self, column: Column) -> Any:
        if not column.required and self.dice.random() < 0.2:
            return None
        value = column.value(self.dice.randrange(5))
        if column.fields is not None and self.dice.random() < 0.3:
            value[self.dice.choice(column.fields).number] = None
        return value

    def _remember(self) -> None:
        latest = self.table.latest_snapshot()
        if latest is not None:
            self._past.setdefault(latest.id, (self.key, self.expected()))

    # --- comparing ---------------------------------------------------------------------------

    def expected(self) -> list[dict[str, Any]]:
        """What a read should give, by key."""
        return [
            {self.key: key} | {c.name: c.shown(row.get(c.number)) for c in self.columns}
            for key, row in sorted(self.rows.items())
        ]

    def check(self) -> None:
        """Reads of now and then, whole, filtered and projected, are what the model says."""
        expected = self.expected()
        assert sorted(self.table.schema.names) == sorted(
            [self.key, *(c.name for c in self.columns)]
        )
        assert self._read() == expected, self.log
        column = self.dice.choice(self.columns)
        name = column.name
        if column.fields is None:
            value = column.value(self.dice.randrange(5))
            scalar = pa.scalar(value, self.table.schema.arrow.field(name).type)
            found = [row for row in expected if row[name] == value]
            assert self._read(where=pc.field(name) == scalar) == found, (name, value, self.log)
        without = [row for row in expected if row[name] is None]
        assert self._read(where=pc.field(name).is_null()) == without, (name, self.log)
        narrow = [{one: row[one] for one in (self.key, name)} for row in expected]
        assert self._read(columns=[self.key, name]) == narrow, (name, self.log)
        if self._past:
            at = self.dice.choice(sorted(self._past))
            key, then = self._past[at]
            past = self.table.scan(snapshot_id=at).to_arrow().sort_by(key)
            assert past.to_pylist() == then, (at, self.log)

    def _read(self, **asked: Any) -> list[dict[str, Any]]:
        return self.table.scan(**asked).to_arrow().sort_by(self.key).to_pylist()


# --- changes -------------------------------------------------------------------------------------

NAMES = "abcdefghij"


def unused(columns: list[Column], dice: random.Random, taken: str = "") -> str:
    """A name that no column of these has; one that another had before is as good."""
    names = {each.name for each in columns} | {taken}
    return dice.choice([name for name in NAMES if name not in names])


def structures(table: ChangingTable) -> list[Column]:
    return [each for each in table.columns if each.fields is not None]


def add(table: ChangingTable, **place: Any) -> None:
    kind = table.dice.choice(KINDS)
    column = Column(table.number(), unused(table.columns, table.dice, table.key), kind)
    table.alter(lsm.AddColumn(name=column.name, type=kind, **place))
    table.columns.append(column)
    names = table.table.schema.names
    at = 0 if place.get("first") else len(names) - 1
    at = names.index(place["after"]) + 1 if "after" in place else at
    assert names[at] == column.name


def add_first(table: ChangingTable) -> None:
    add(table, first=True)


def add_after(table: ChangingTable) -> None:
    add(table, after=table.dice.choice([table.key, *(each.name for each in table.columns)]))


def add_structure(table: ChangingTable) -> None:
    name = unused(table.columns, table.dice, table.key)
    fields = [Column(table.number(), "x", "INT"), Column(table.number(), "y", "STRING")]
    table.alter(lsm.AddColumn(name=name, type=pa.struct([("x", pa.int32()), ("y", pa.string())])))
    table.columns.append(Column(table.number(), name, "", fields))


def add_nested(table: ChangingTable) -> None:
    for outer in structures(table)[:1]:
        assert outer.fields is not None
        inner = Column(
            table.number(), unused(outer.fields, table.dice), table.dice.choice(["INT", "STRING"])
        )
        table.alter(lsm.AddColumn(name=(outer.name, inner.name), type=inner.kind))
        outer.fields.append(inner)


def drop(table: ChangingTable) -> None:
    if len(table.columns) > 1:
        column = table.dice.choice(table.columns)
        table.alter(lsm.DropColumn(name=column.name))
        table.columns.remove(column)


def drop_nested(table: ChangingTable) -> None:
    for outer in structures(table)[:1]:
        assert outer.fields is not None
        if len(outer.fields) > 1:
            inner = table.dice.choice(outer.fields)
            table.alter(lsm.DropColumn(name=(outer.name, inner.name)))
            outer.fields.remove(inner)


def add_again(table: ChangingTable) -> None:
    """The column of a name becomes another one, of the same type or not."""
    column = table.dice.choice([each for each in table.columns if each.fields is None] or [None])
    if column is None:
        return
    kind = table.dice.choice([column.kind, table.dice.choice(KINDS)])
    table.alter(
        lsm.DropColumn(name=column.name), lsm.AddColumn(name=column.name, type=kind, first=True)
    )
    table.columns.remove(column)
    table.columns.append(Column(table.number(), column.name, kind))


def rename(table: ChangingTable) -> None:
    column = table.dice.choice(table.columns)
    name = unused(table.columns, table.dice, table.key)
    table.alter(lsm.RenameColumn(name=column.name, new_name=name))
    column.name = name


def rename_nested(table: ChangingTable) -> None:
    for outer in structures(table)[:1]:
        assert outer.fields is not None
        inner = table.dice.choice(outer.fields)
        name = unused(outer.fields, table.dice)
        table.alter(lsm.RenameColumn(name=(outer.name, inner.name), new_name=name))
        inner.name = name


def rename_key(table: ChangingTable) -> None:
    name = unused(table.columns, table.dice, table.key)
    table.alter(lsm.RenameColumn(name=table.key, new_name=name))
    table.key = name


def swap_names(table: ChangingTable) -> None:
    if len(table.columns) > 1:
        one, other = table.dice.sample(table.columns, 2)
        table.alter(
            lsm.RenameColumn(name=one.name, new_name="between"),
            lsm.RenameColumn(name=other.name, new_name=one.name),
            lsm.RenameColumn(name="between", new_name=other.name),
        )
        one.name, other.name = other.name, one.name


def retype(table: ChangingTable) -> None:
    able = [each for each in table.columns if each.fields is None and TYPES[each.kind][1]]
    for column in table.dice.sample(able, min(1, len(able))):
        kind = table.dice.choice(TYPES[column.kind][1])
        if column.default is not None:  # it has to be a value of either type
            table.alter(lsm.SetColumnDefault(name=column.name, value=None))
            column.default = None
        table.alter(lsm.ChangeType(name=column.name, type=kind))
        column.kind = kind
        for row in table.rows.values():
            if column.number in row:
                row[column.number] = converted(row[column.number], kind)


def retype_nested(table: ChangingTable) -> None:
    for outer in structures(table)[:1]:
        assert outer.fields is not None
        able = [each for each in outer.fields if TYPES[each.kind][1]]
        for inner in table.dice.sample(able, min(1, len(able))):
            kind = table.dice.choice(TYPES[inner.kind][1])
            table.alter(lsm.ChangeType(name=(outer.name, inner.name), type=kind))
            inner.kind = kind
            for row in table.rows.values():
                value = row.get(outer.number)
                if value is not None and inner.number in value:
                    value[inner.number] = converted(value[inner.number], kind)


def allow_nulls(table: ChangingTable) -> None:
    for column in [each for each in table.columns if each.required][:1]:
        table.alter(lsm.SetNullable(name=column.name))
        column.required = False


def set_default(table: ChangingTable) -> None:
    able = [each for each in table.columns if each.kind in ("INT", "BIGINT") and not table.merges]
    for column in table.dice.sample(able, min(1, len(able))):
        column.default = table.dice.choice([None, 1, 3])
        value = None if column.default is None else str(column.value(column.default))
        table.alter(lsm.SetColumnDefault(name=column.name, value=value))


def move(table: ChangingTable) -> None:
    one, *others = table.dice.sample(table.columns, min(2, len(table.columns)))
    place = {"after": others[0].name} if others else {"first": True}
    table.alter(lsm.MoveColumn(name=one.name, **place))


def say(table: ChangingTable) -> None:
    name = table.dice.choice(table.columns).name
    table.alter(lsm.SetComment(comment="said"), lsm.SetColumnComment(name=name, comment="meant"))


def set_option(table: ChangingTable) -> None:
    key, values = table.dice.choice(
        [
            ("metadata.stats-mode", ("none", "counts", "truncate(1)", "full")),
            ("file.format", FORMATS),
            ("target-file-size", ("1 kb", "128 mb")),
        ]
    )
    table.alter(lsm.SetOption(key=key, value=table.dice.choice(values)))


CHANGES: dict[str, Callable[[ChangingTable], None]] = {
    "add": add,
    "add first": add_first,
    "add after": add_after,
    "add structure": add_structure,
    "add nested": add_nested,
    "drop": drop,
    "drop nested": drop_nested,
    "add again": add_again,
    "rename": rename,
    "rename nested": rename_nested,
    "rename key": rename_key,
    "swap names": swap_names,
    "retype": retype,
    "retype nested": retype_nested,
    "allow nulls": allow_nulls,
    "default": set_default,
    "move": move,
    "comment": say,
    "option": set_option,
}


def refused(table: ChangingTable) -> list[Any]:
    """Changes that no table takes."""
    name = table.dice.choice(table.columns).name
    return [
        lsm.DropColumn(name=table.key),
        lsm.ChangeType(name=table.key, type="STRING"),
        lsm.SetNullable(name=table.key),
        lsm.AddColumn(name=name, type="INT"),
        lsm.AddColumn(name="new", type="INT NOT NULL"),
        lsm.RenameColumn(name=name, new_name=table.key),
        lsm.DropColumn(name="nowhere"),
        lsm.ChangeType(name=name, type=pa.list_(pa.int32())),
        lsm.SetOption(key="merge-engine", value="aggregation"),
        lsm.SetOption(key="nowhere", value="1"),
    ]


def try_refused(table: ChangingTable) -> None:
    """A change that is refused takes those along that came with it."""
    change = table.dice.choice(refused(table))
    before = table.table.session.schemas.latest()
    try:
        table.table.alter(lsm.SetComment(comment="never"), change)
    except lsm.LsmError:
        pass
    else:
        raise AssertionError(("not refused", change, table.log))
    assert table.table.session.schemas.latest() == before
    table.table = reopen(table.parts)


def started(dice: random.Random) -> ChangingTable:
    """A table with rows, of some format and kind."""
    options = dice.choice(OPTIONS) | {
        "file.format": dice.choice(FORMATS),
        "metadata.stats-mode": dice.choice(["none", "truncate(16)", "full"]),
    }
    table = ChangingTable(dice, options)
    table.write()
    return table


def run_pair(first: str, second: str, seed: int) -> None:
    """One change, then another, with rows before, between and after."""
    table = started(random.Random(f"{first} {second} {seed}"))
    for name in (first, second):
        CHANGES[name](table)
        if table.dice.random() < 0.7:
            table.write()
        table.check()
    table.compact()
    table.check()
    assert table.table.verify().problems == (), table.log


def run_chain(seed: int) -> None:
    """Ten changes of any kind, with writes, compactions and refusals between."""
    table = started(random.Random(f"chain {seed}"))
    for _ in range(10):
        CHANGES[table.dice.choice(list(CHANGES))](table)
        fate = table.dice.random()
        if fate < 0.6:
            table.write()
        elif fate < 0.75:
            table.compact()
        elif fate < 0.85:
            try_refused(table)
        table.check()
    table.table.compact(full=True)
    table.check()
    assert table.table.verify().problems == (), table.log
