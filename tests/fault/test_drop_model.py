"""Tables that are dropped and made in one place, in every order of single calls, on the real code.

As in `test_protocol_model`, a process is known by the answers that it was given, and the invariant is
checked after each call. The catalog's names are files here: a transaction is one call.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from lsm_engine.api import catalog
from lsm_engine.api.catalog import Catalog
from lsm_engine.base.errors import AlreadyExistsError, NotFoundError
from lsm_engine.ddl import create
from lsm_engine.format.documents import encode_snapshot
from lsm_engine.storage.file_io import FileStatus, StoreFacts
from lsm_engine.table.components import LocalExecutor
from tests.fault.test_protocol_model import Answers, NextCall, Replayed, made_on
from tests.fault.test_protocol_model import carried_out as of_one_call

SNAPSHOT = encode_snapshot(made_on(None, "a"))
NAME = "NAME"  # the catalog's row of the table
SCHEMA_0 = "schema/schema-0"
OLD, EQUAL, OTHER = "old", "equal", "other"
Files = frozenset[tuple[str, bytes]]
Report = Callable[[str], None]


class Storage(Replayed):
    facts = StoreFacts(has_directories=False)
    _pending: NextCall | None = None

    def _call(self, verb: str, path: str, data: bytes = b"") -> Any:
        if self._pending is not None:  # of a `finally`: the process has stopped before
            raise self._pending
        try:
            return super()._call(verb, path, data)
        except NextCall as pending:
            self._pending = pending
            raise

    def remove_empty_directory(self, directory: str) -> bool:
        del directory
        return True

    def list_files(self, directory: str) -> Any:
        return iter(self._call("list_files", directory))

    def now_millis(self) -> int:
        return 7


def carried_out(files: Files, verb: str, path: str, data: bytes) -> tuple[Files, Any]:
    """Return the files after a call, and its answer: here directories are listed, too."""
    if verb not in ("list", "list_files"):
        return of_one_call(files, verb, path, data)
    there = dict(files)
    below = f"{path}/" if path else ""
    ends = sorted(one for one in there if one.startswith(below) and one != NAME)
    if verb == "list":
        ends = sorted({below + one.removeprefix(below).split("/")[0] for one in ends})
    return files, tuple(
        FileStatus(path=one, size=1, modified_millis=0, is_directory=one not in there)
        for one in ends
    )


class Names:
    """What the catalog in SQL does, each transaction one call."""

    catalog_key = "c"
    database = None  # nobody asks for lineage

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def table_location(self, name: object) -> str:
        return "t"

    def load_table(self, name: object) -> SimpleNamespace:
        if not self._storage.exists(NAME):
            raise NotFoundError("no such table")
        return SimpleNamespace(location="t")

    def register_table(self, name: object, **_: object) -> None:
        if not self._storage.publish(NAME, b""):
            raise AlreadyExistsError("this table exists")

    def drop_table(self, name: object, *, ignore_missing: bool = False, **_: object) -> bool:
        taken = self._storage.delete(NAME)
        if not taken and not ignore_missing:
            raise NotFoundError("no such table")
        return taken


class OneTable(Catalog):
    def __init__(self, storage: Storage, process: str) -> None:
        ids: Any = SimpleNamespace(new_id=lambda: process)
        names: Any = Names(storage)
        super().__init__(names, executor=LocalExecutor(), clock=storage, ids=ids)
        self._only = storage

    def _directory(self, location: str) -> Any:
        return self._only

    def table(self, name: str) -> Any:
        if not self._only.exists(SCHEMA_0):
            raise NotFoundError("no table is here")
        return SimpleNamespace(session=SimpleNamespace(follow_iceberg=lambda: None))


def creator(column: str) -> Callable[[OneTable], str]:
    def run(catalog: OneTable) -> str:
        try:
            catalog.create_table("a.t", pa.schema([("k", pa.int64()), (column, pa.int64())]), "k")
        except (AlreadyExistsError, NotFoundError):
            return "refused"
        return "made"

    return run


def dropper(catalog: OneTable) -> str:
    try:
        catalog.drop_table("a.t")
    except NotFoundError:
        return "nothing was there"
    return "dropped"


def step(process: Callable[[OneTable], str], number: int, answers: Answers) -> tuple[Any, str]:
    """Return a process's next call, or None and how it ended."""
    try:
        return None, process(OneTable(Storage(answers), f"{number}"))
    except NextCall as pending:
        return pending.call, ""


def explore(processes: tuple[Any, ...], files: Files) -> tuple[int, set[tuple[str, ...]]]:
    """Check every state that can be reached; return how many there are, and how all may end.

    A state is what lies there, what each was answered, and who gave the name that is there: a drop that
    takes the name means that one's table.
    """
    steps: dict[tuple[int, Answers], tuple[Any, str]] = {}
    first = (files, tuple(() for _ in processes), -1)
    seen, waiting, ends = {first}, [first], set()
    while waiting:
        files, given, names = waiting.pop()
        calls = []
        for number, answers in enumerate(given):
            if (number, answers) not in steps:
                steps[number, answers] = step(processes[number], number, answers)
            calls.append(steps[number, answers])
        if all(call is None for call, _ in calls):
            ends.add(tuple(end for _, end in calls))
        for number, (call, _) in enumerate(calls):
            if call is None:
                continue
            after, answer = carried_out(files, *call)
            answers = (*given[number], answer)
            if (number, answers) not in steps:
                steps[number, answers] = step(processes[number], number, answers)
            by = names
            if call[1] == NAME and answer:
                by = number if call[0] == "publish" else -1 if call[0] == "delete" else names
            others = (*given[:number], answers, *given[number + 1 :])
            if by >= 0 and steps.get((by, others[by]), (None, ""))[1] == "made":
                assert SCHEMA_0 in dict(after), "a table was made, and a drop deleted it"
            following = (after, others, by)
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return len(seen), ends


def old_table() -> Files:
    """A table without rows, which one who makes an equal one may take over."""
    files: Files = frozenset()
    answers: Answers = ()
    while (call := step(creator(OLD), 0, answers)[0]) is not None:
        files, answer = carried_out(files, *call)
        answers = (*answers, answer)
    return files


HISTORIES = {
    "another": (dropper, creator(OTHER)),
    "an equal one": (dropper, creator(OLD)),
    "two drops": (dropper, dropper, creator(OTHER)),
    "two creators": (dropper, creator(OLD), creator(OTHER)),
}


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("rows", [False, True])
def test_no_drop_deletes_a_table_that_was_made_meanwhile(history: str, rows: bool) -> None:
    more = {("bucket-0/data-1", b""), ("snapshot/snapshot-1", SNAPSHOT)} if rows else set()
    count, ends = explore(HISTORIES[history], old_table() | more)
    print(f"{history}: {count} states, which end as {sorted(ends)}")
    assert any("made" in end for end in ends)
    assert any("refused" in end for end in ends)


@pytest.mark.parametrize("history", ["an equal one", "two drops"])
def test_without_a_look_for_the_sign_a_drop_deletes_a_new_table(
    history: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model can fail."""
    for module in (create, catalog):
        monkeypatch.setattr(module, "refuse_beside_drop", lambda file_io, **_: None)
    with pytest.raises(AssertionError, match="a drop deleted it"):
        explore(HISTORIES[history], old_table())
