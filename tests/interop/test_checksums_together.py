"""Tables with checksums and named bases, changed in random turns by us and real clients: deep verify stays clean.

Clients know neither `lsm.checksums` nor `lsm.base`: what they write is unchecked, and nothing else of it
is wrong. `LSM_NEWEST_JAVA=40` makes 80 histories.
"""

import random
from pathlib import Path
from typing import Any

import pytest

import lsm_engine as lsm
from tests.interop.canonical import canonical_rows, difference
from tests.interop.clients import Client
from tests.interop.newest_java import TIMES, NewestJava
from tests.interop.our_tables import NUMBERS, create, numbers, rows_of

pytestmark = pytest.mark.interop

OPTIONS: list[dict[str, str]] = [
    {}, {"deletion-vectors.enabled": "true"}, {"changelog-producer": "input"},
    {"file.format": "orc"}, {"file.format": "avro"}, {"manifest.merge-min-count": "2"},
]  # fmt: skip


class Turns:
    """One table, and what each can do with it."""

    def __init__(self, folder: Path, clients: list[Client], newest: NewestJava, seed: str) -> None:
        self.draw = random.Random(seed)
        self.clients, self.newest = clients, newest
        options = {"bucket": "1", "num-sorted-run.compaction-trigger": "3"}
        # pypaimon cannot write beside deletion vectors, and no Java reads its ORC and Avro here.
        python = any(client.name == "pypaimon" for client in clients)
        chosen = {} if python else self.draw.choice(OPTIONS)
        self.path = str(
            create(folder, NUMBERS, primary_key=["k"], options=options | chosen).location
        )
        self.log: list[Any] = [options | chosen]

    @property
    def table(self) -> lsm.Table:
        return lsm.open_table(self.path)

    def act(self) -> None:
        who = self.draw.choice(["ours", "newest", *self.clients])
        what = self.draw.choice(["write"] * 3 + ["compact", "tag", "expire", "rollback"])
        name = who if isinstance(who, str) else who.name
        self.log.append((name, what))
        start = self.draw.randrange(100)
        rows = numbers(range(start, start + 20), f"{len(self.log)}-")
        tag = f"tag-{len(self.log)}"
        newest = self.table.latest_snapshot()
        if isinstance(who, Client):
            self._client(who, what, rows, tag)
        elif newest is None or what == "write":
            self._write(name, rows)
        elif what == "rollback":
            self._roll_back(name)
        elif name == "ours":
            self._act(what, tag)
        else:
            facts = {"compact": {"full": True}, "tag": {"name": tag, "of": newest.id}}
            operation = {"tag": "createTag"}.get(what, what)
            self.newest.ask(operation, path=self.path, **facts.get(what, {"max": 3}))

    def _act(self, what: str, tag: str) -> None:
        if what == "compact":
            self.table.compact(full=self.draw.random() < 0.5)
        elif what == "tag":
            self.table.create_tag(tag)
        else:
            self.table.expire_snapshots(retain_min=1, retain_max=3, older_than="0 s")

    def _write(self, name: str, rows: Any) -> None:
        kinds = [self.draw.choice(["+I", "+U", "-D"]) for _ in range(rows.num_rows)]
        listed = [list(row.values()) for row in rows.to_pylist()]
        if name == "newest":
            both = [list(pair) for pair in zip(kinds, listed, strict=True)]
            self.newest.ask("write", path=self.path, rows=both)
        else:
            named = rows.to_pylist()
            self.table.upsert(
                [row | {"_row_kind": kind} for row, kind in zip(named, kinds, strict=True)]
            )

    def _roll_back(self, name: str) -> None:
        ids = self.table.snapshot_ids()
        to = self.draw.choice(ids[-2:])
        if name == "ours":
            self.table.rollback_to(to)
        else:
            self.newest.ask("rollback", path=self.path, to=to)

    def _client(self, client: Client, what: str, rows: Any, tag: str) -> None:
        if what == "tag" and self.table.latest_snapshot() is not None:
            client.create_tag(self.path, tag)
        elif client.name == "java" and what == "compact":
            client.compact(self.path, full=True)
        elif client.name == "java" and what == "expire":
            client.expire(self.path, retain_max=3)
        else:
            client.write(self.path, rows)

    def check(self) -> None:
        report = self.table.verify(deep=True)
        assert report.problems == (), self.log
        ours = rows_of(self.table)
        asked = self.newest.ask("read", path=self.path)
        names = [name for name, _ in NUMBERS]
        theirs = [dict(zip(names, row, strict=True)) for row in asked]
        assert difference(theirs, ours) == "", self.log
        for client in self.clients:
            assert difference(client.read_rows(self.path), ours) == "", (client.name, self.log)


@pytest.mark.parametrize("seed", range(TIMES))
@pytest.mark.parametrize("name", ["java", "pypaimon"])
def test_deep_verify_stays_clean(
    name: str, seed: int, request: pytest.FixtureRequest, java_2: NewestJava, tmp_path: Path
) -> None:
    client: Client = request.getfixturevalue(name)
    turns = Turns(tmp_path, [client], java_2, f"{name} {seed}")
    for _ in range(8):
        turns.act()
        turns.check()
    table = turns.table
    for tag in table.tags():
        rows = canonical_rows(table.scan(tag=tag.name).to_arrow())
        assert difference(client.read_rows(turns.path, tag=tag.name), rows) == "", turns.log
    java_2.ask("write", path=turns.path, rows=[["+I", [1, "x", 2, 0.5]]])
    report = table.verify(deep=True)
    assert (report.problems, report.unchecked_count > 0) == ((), True)
