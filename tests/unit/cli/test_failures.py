"""Failures: a line or two, an exit code per class, JSON where asked for, a traceback on demand only."""

import json
import re

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsm_engine.api.table import Table
from lsm_engine.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    CorruptFileError,
    ExpiredError,
    InvalidInputError,
    InvalidOptionError,
    LsmError,
    NotFoundError,
    StorageError,
    UnsafePathError,
    UnsupportedError,
)
from lsm_engine.cli.exit_codes import EXIT_CODES, exit_code_lines, exit_code_of
from lsm_engine.cli.main import lsm
from lsm_engine.cli.verb import ELSEWHERE
from tests.docs.blocks import DOCS

CODES = {
    NotFoundError: 3, ExpiredError: 3, AlreadyExistsError: 4, InvalidOptionError: 5,
    InvalidInputError: 5, CommitConflictError: 6, CommitUnknownError: 7, UnsupportedError: 8,
    CorruptFileError: 9, StorageError: 10, UnsafePathError: 11, LsmError: 12,
}  # fmt: skip


def every_error(kind: type[LsmError] = LsmError) -> list[type[LsmError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in every_error(child))]


def test_every_class_of_errors_has_a_documented_code() -> None:
    engine = {kind for kind in every_error() if kind.__module__ == "lsm_engine.base.errors"}
    assert engine == CODES.keys()
    documented = {int(number) for number, _ in exit_code_lines()}
    for kind, number in CODES.items():
        assert exit_code_of(kind("x")) == number
    assert {number for _, number, _ in EXIT_CODES} <= documented


@pytest.mark.parametrize("kind", CODES, ids=lambda kind: kind.__name__)
def test_a_failure_is_two_lines(shop, monkeypatch, kind: type[LsmError]) -> None:
    def fail(*_: object, **__: object) -> None:
        raise kind("it is wrong; do this\x1b[2J", table="shop.orders", count=3)

    monkeypatch.setattr(Table, "verify", fail)
    told = shop("verify", "shop.orders", code=CODES[kind])
    first, second = told.stderr.splitlines()
    assert first == "lsm: it is wrong; do this\\x1b[2J"
    assert "table='shop.orders' count=3" in second
    as_json = json.loads(shop("verify", "shop.orders", "--json", code=CODES[kind]).stderr)
    assert as_json["exit_code"] == CODES[kind]
    assert as_json["facts"] == {"table": "shop.orders", "count": 3}
    assert as_json["message"].startswith("it is wrong")


def test_a_bug_is_told_without_a_traceback(shop, monkeypatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(Table, "verify", fail)
    told = shop("verify", "shop.orders", code=70).stderr
    assert "ZeroDivisionError: by nothing" in told
    assert "--debug" in told
    assert json.loads(shop("verify", "shop.orders", "--json", code=70).stderr)["exit_code"] == 70


def test_debug_shows_where(shop) -> None:
    with pytest.raises(AssertionError):  # the shell of these tests refuses tracebacks
        shop("snapshot", "shop.orders", 99, "--debug", code=3)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_verb_of_others_is_answered_by_one_that_is_there(name) -> None:
    assert lsm.get_command(click.Context(lsm), name) is None
    named = re.findall(r"\blsm ((?:show |tag |branch )?[a-z-]+)", ELSEWHERE[name])
    assert named
    for words in named:
        at = lsm
        for word in words.split():
            found = at.get_command(click.Context(at), word)
            assert found is not None, words
            at = found


def test_the_command_line_itself(shell) -> None:
    assert "did you mean 'tables'?" in shell("tabels", code=2).stderr
    assert "use lsm tables" in shell("ls", code=2).stderr
    assert "lsm show snapshots shop.orders" in shell("show", "shop.orders", code=2).stderr
    shell("scan", code=2)
    shell("scan", "a.b", "--nothing", code=2)
    assert shell("--help").stdout.startswith("Usage: lsm")


def test_an_interrupted_upsert_says_that_the_table_is_as_it_was(shop, monkeypatch) -> None:
    source = shop.file("x.csv", "order_id,day\n1,mon\n")

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Table, "upsert", interrupt)
    told = shop("upsert", "shop.orders", source, code=130).stderr
    assert "stopped before the commit; the table is as it was" in told
    assert len(shop.json("snapshots", "shop.orders")) == 3


def test_an_interrupt_after_the_commit_says_that_it_stands(shop, monkeypatch) -> None:
    source = shop.file("x.csv", "order_id,day\n1,mon\n")
    upsert = Table.upsert

    def late(self: Table, rows: object, **identity: str) -> None:
        upsert(self, rows, **identity)
        raise KeyboardInterrupt

    monkeypatch.setattr(Table, "upsert", late)
    told = shop("upsert", "shop.orders", source, code=130).stderr
    assert "after the commit: snapshot 4 is there" in told


def test_an_interrupted_read_is_told_in_a_line(shop, monkeypatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Table, "scan", interrupt)
    assert "nothing was changed" in shop("count", "shop.orders", code=130).stderr


def test_a_listener_that_fails_is_a_warning(shop, monkeypatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the catalog is elsewhere")

    shop("tag", "create", "shop.orders", "x")
    monkeypatch.setattr("lsm_engine.api.lineage_sync.LineageSync.record_removal", fail)
    told = shop("tag", "delete", "shop.orders", "x").stderr
    assert told.startswith("lsm: warning: ")
    assert len(told.splitlines()) == 1


def test_a_missing_file_of_a_table_is_damage(shop) -> None:
    next(shop.warehouse.rglob("*.parquet")).unlink()
    told = shop("scan", "shop.orders", code=9).stderr
    assert "a file of the table is missing" in told
    assert "look at: lsm doctor shop.orders --deep" in told
    shop("scan", "shop.nothing", code=3)


def test_files_that_cannot_be_loaded_name_what_a_shell_can_do(shop) -> None:
    told = shop("upsert", "shop.orders", "nowhere.csv", code=5).stderr
    assert "[no-such-file]" in told
    doubles = shop.directory / "doubles.parquet"
    pq.write_table(pa.table({"order_id": [1], "day": ["mon"], "price": [12.5]}), doubles)
    told = shop("upsert", "shop.orders", doubles, code=5).stderr
    assert "--cast COLUMN=TYPE gives it another type" in told
    assert "Decimal(" not in told


def test_a_deletion_asks_by_what_can_be_undone(shop) -> None:
    question = "without undo ('maintenance.trash-retained' is not set)?"
    back = ("rollback", "shop.orders", "--to-snapshot", 1)
    assert question in shop(*back, input="n\n", code=1).stderr
    assert "look at" not in shop("trash", "undo", "shop.orders", code=3).stderr
    shop("alter", "shop.orders", "--set", "maintenance.trash-retained=1 d")
    assert "without undo" not in shop(*back, input="n\n", code=1).stderr


def test_the_address_of_a_server_is_no_warehouse(shell) -> None:
    told = shell("--warehouse", "http://127.0.0.1:8578", "tables", code=11).stderr
    assert "give it by --catalog, not by --warehouse" in told


def test_the_page_for_operators_has_the_exit_codes_that_there_are() -> None:
    page = (DOCS / "operators.md").read_text().partition("## Exit codes")[2]
    listed = dict(re.findall(r"^\| (\d+) \| (.+) \|$", page, re.MULTILINE))
    assert sorted(map(int, listed)) == sorted(int(number) for number, _ in exit_code_lines())
    for number, meaning in exit_code_lines():
        words = {*re.findall(r"\w+", meaning.replace(" or setting ", " "))}
        assert len(words & {*re.findall(r"\w+", listed[number])}) >= min(len(words), 3), number
