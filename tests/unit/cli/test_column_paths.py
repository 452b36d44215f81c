"""Columns whose names have dots, and fields within columns, mean the same in Python and in the shell."""

import re

import pyarrow as pa
import pytest

import lsm_engine as lsm

COLUMNS = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        ("s", pa.struct([("a", pa.int32()), ("x.y", pa.int32())])),
        ("a.b", pa.int32()),
        ("s.a", pa.int32()),
        ("lines", pa.list_(pa.struct([("id", pa.int32())]))),
    ]
)

ACCEPTED = {
    "field added": (
        lsm.AddColumn("s.b", "INT"),
        ["--add", "s.b INT"],
        lambda arrow, schema: "b" in arrow.field("s").type.names,
    ),
    "field of an element added": (
        lsm.AddColumn("lines.element.n", "INT"),
        ["--add", "lines.element.n INT"],
        lambda arrow, schema: arrow.field("lines").type.value_type.names == ["id", "n"],
    ),
    "field with a dot added": (
        lsm.AddColumn("s.`p.q`", "INT"),
        ["--add", "s.`p.q` INT"],
        lambda arrow, schema: "p.q" in arrow.field("s").type.names,
    ),
    "column with a dot added": (
        lsm.AddColumn("`c.d`", "INT"),
        ["--add", "`c.d` INT"],
        lambda arrow, schema: arrow.names[-1] == "c.d",
    ),
    "column with a blank added": (
        lsm.AddColumn("`c d`", "INT"),
        ["--add", '"c d" INT'],
        lambda arrow, schema: arrow.names[-1] == "c d",
    ),
    "column dropped": (
        lsm.DropColumn("a.b"),
        ["--drop", "a.b"],
        lambda arrow, schema: "a.b" not in arrow.names,
    ),
    "quoted column dropped": (
        lsm.DropColumn("`s.a`"),
        ["--drop", "`s.a`"],
        lambda arrow, schema: "s.a" not in arrow.names and len(arrow.field("s").type) == 2,
    ),
    "field dropped": (
        lsm.DropColumn('s."x.y"'),
        ["--drop", 's."x.y"'],
        lambda arrow, schema: arrow.field("s").type.names == ["a"],
    ),
    "column renamed": (
        lsm.RenameColumn("a.b", "e"),
        ["--rename", "a.b=e"],
        lambda arrow, schema: "e" in arrow.names,
    ),
    "new name with a dot": (
        lsm.RenameColumn("a.b", "`e.f`"),
        ["--rename", "a.b=`e.f`"],
        lambda arrow, schema: "e.f" in arrow.names,
    ),
    "column typed": (
        lsm.ChangeType("a.b", "BIGINT"),
        ["--type", "a.b BIGINT"],
        lambda arrow, schema: arrow.field("a.b").type == pa.int64(),
    ),
    "quoted column typed": (
        lsm.ChangeType("`s.a`", "BIGINT"),
        ["--type", "`s.a` BIGINT"],
        lambda arrow, schema: arrow.field("s.a").type == pa.int64(),
    ),
    "nullable": (
        lsm.SetNullable("a.b"),
        ["--nullable", "a.b"],
        lambda arrow, schema: arrow.field("a.b").nullable,
    ),
    "default": (
        lsm.SetColumnDefault("a.b", "7"),
        ["--default", "a.b=7"],
        lambda arrow, schema: schema.field("a.b").default_value == "7",
    ),
    "comment of a field": (
        lsm.SetColumnComment(["s", "a"], "c"),
        ["--column-comment", 's."a"=c'],
        lambda arrow, schema: schema.field("s").type.fields[0].description == "c",
    ),
    "comment of a column": (
        lsm.SetColumnComment("a.b", "c"),
        ["--column-comment", "a.b=c"],
        lambda arrow, schema: schema.field("a.b").description == "c",
    ),
    "field first": (
        lsm.MoveColumn("s.`x.y`", first=True),
        ["--first", "s.`x.y`"],
        lambda arrow, schema: arrow.field("s").type.names == ["x.y", "a"],
    ),
    "column first": (
        lsm.MoveColumn("a.b", first=True),
        ["--first", "a.b"],
        lambda arrow, schema: arrow.names[0] == "a.b",
    ),
    "column after": (
        lsm.MoveColumn("k", after="a.b"),
        ["--after", "k=a.b"],
        lambda arrow, schema: arrow.names.index("k") == arrow.names.index("a.b") + 1,
    ),
    "column after a quoted one": (
        lsm.MoveColumn("k", after="`s.a`"),
        ["--after", "k=`s.a`"],
        lambda arrow, schema: arrow.names.index("k") == arrow.names.index("s.a") + 1,
    ),
}
"""A change, the words of the shell for it, and what is true after it."""

REFUSED = {
    "both a column and a field": (lsm.DropColumn("s.a"), ["--drop", "s.a"], r"\('s\.a',\).*\('s', 'a'\)"),
    "added beside a column of the name": (lsm.AddColumn("s.a", "INT"), ["--add", "s.a INT"], "may be a column"),
    "typed, both": (lsm.ChangeType("s.a", "BIGINT"), ["--type", "s.a BIGINT"], "may be a column"),
    "no structure to add to": (lsm.AddColumn("c.d", "INT"), ["--add", "c.d INT"], r"`c\.d` in backquotes"),
    "a column that is no structure": (lsm.AddColumn("k.d", "INT"), ["--add", "k.d INT"], "no structure 'k'"),
    "new name that is a path": (lsm.RenameColumn("a.b", "s.c"), ["--rename", "a.b=s.c"], r"`s\.c` in backquotes"),
    "no such field": (lsm.DropColumn("s.n"), ["--drop", "s.n"], "no column 'n'"),
    "quotes that do not close": (lsm.AddColumn("`c.d", "INT"), ["--add", "`c.d INT"], "backquotes"),
}  # fmt: skip


@pytest.fixture
def pair(shell):
    """Two tables of the same columns, one to alter in Python, one to alter in the shell."""
    with shell.catalog() as catalog:
        for name in ("db.python", "db.shell"):
            catalog.create_table(name, COLUMNS, primary_key="k")
        yield catalog


def described(table):
    """The columns of a table, and of structures within them, with all that a change may set."""
    return [
        (field.name, field.type, field.description, field.default_value)
        for field in table.schema.fields
    ]


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_path_means_the_same_in_python_and_in_the_shell(shell, pair, case):
    change, words, expected = ACCEPTED[case]
    table = pair["db.python"]
    table.alter(change)
    shell("alter", "db.shell", *words)
    assert described(table) == described(pair["db.shell"])
    assert expected(table.schema.arrow, table.schema)


@pytest.mark.parametrize("case", REFUSED)
def test_a_path_is_refused_alike_in_python_and_in_the_shell(shell, pair, case):
    change, words, message = REFUSED[case]
    table = pair["db.python"]
    before = described(table)
    with pytest.raises(lsm.LsmError, match=message):
        table.alter(change)
    assert re.search(
        message,
        " ".join(shell("alter", "db.shell", *words, code=(1, 2, 3, 4, 5, 6)).stderr.split()),
    )
    assert described(pair["db.python"]) == described(pair["db.shell"]) == before


def test_sequences_of_names_decide_where_a_text_has_two_meanings(pair):
    table = pair["db.python"]
    table.alter(lsm.RenameColumn(("s", "a"), "field"), lsm.RenameColumn(("s.a",), "column"))
    assert table.schema.names == ("k", "s", "a.b", "column", "lines")
    assert table.schema.arrow.field("s").type.names == ["field", "x.y"]


def test_options_of_a_column_do_not_follow_a_field_of_the_same_path(shell):
    with shell.catalog() as catalog:
        options = {"fields.s.a.stats-mode": "full"}
        table = catalog.create_table("db.t", COLUMNS, primary_key="k", options=options)
        table.alter(lsm.RenameColumn(("s", "a"), "b"))
        assert dict(table.options.texts)["fields.s.a.stats-mode"] == "full"
        table.alter(lsm.DropColumn(("s", "b")))
        with pytest.raises(lsm.InvalidOptionError, match="stats-mode"):
            table.alter(lsm.DropColumn("s.a"))
        table.alter(lsm.RenameColumn("s.a", "c"))
        assert dict(table.options.texts)["fields.c.stats-mode"] == "full"


CHANGES = {
    "AddColumn": lambda name: lsm.AddColumn(name, "INT"),
    "DropColumn": lsm.DropColumn,
    "RenameColumn": lambda name: lsm.RenameColumn(name, "n"),
    "new_name": lambda name: lsm.RenameColumn("k", name),
    "ChangeType": lambda name: lsm.ChangeType(name, "INT"),
    "SetNullable": lsm.SetNullable,
    "SetColumnComment": lambda name: lsm.SetColumnComment(name, "c"),
    "SetColumnDefault": lambda name: lsm.SetColumnDefault(name, "1"),
    "MoveColumn": lambda name: lsm.MoveColumn(name, first=True),
}


@pytest.mark.parametrize("name", [5, None, (), ("s", 5), {"s": "b"}, b"k", ""])
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_no_name_is_refused(pair, change, name):
    table = pair["db.python"]
    with pytest.raises((lsm.InvalidInputError, lsm.NotFoundError)):
        table.alter(CHANGES[change](name))
    assert table.schema.id == 0
