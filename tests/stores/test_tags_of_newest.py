"""A tag of the newest snapshot goes without a look before it, if this process knew the newest a second ago."""

from collections.abc import Callable
from pathlib import Path

import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import AlreadyExistsError
from lsm_engine.metadata import snapshots
from lsm_engine.metadata.tags import TagStore
from tests.stores.small_tables import forget_all, small_table, upsert
from tests.stores.test_request_budgets import StillClock


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> lsm.Table:
    monkeypatch.setattr(snapshots, "_clock", StillClock())
    return small_table(tmp_path, 3)


def by_others(act: Callable[[], object]) -> None:
    """Act as another process would: this one knows what it knew."""
    known = dict(snapshots._newest_known)
    act()
    snapshots._newest_known.clear()
    snapshots._newest_known.update(known)


def keys(table: lsm.Table, tag: str) -> list[int]:
    return sorted(table.scan(tag=tag).to_arrow()["k"].to_pylist())


OTHERS: dict[str, tuple[Callable[[lsm.Table], object], list[int]]] = {
    "a commit": (lambda table: upsert(table, 3), [0, 1, 2, 3]),
    "commits and an expiry": (
        lambda table: (
            [upsert(table, number) for number in (3, 4)],
            table.compact(full=True),
            table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s"),
        ),
        [0, 1, 2, 3, 4],
    ),
    "a rollback": (lambda table: table.rollback_to(2), [0, 1]),
    "a rollback and a commit": (
        lambda table: (table.rollback_to(2), upsert(table, 9)),
        [0, 1, 9],
    ),
}


@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("when", ["before", "after the tag is made"])
def test_what_others_did_meanwhile_is_named(
    table: lsm.Table, monkeypatch: pytest.MonkeyPatch, what: str, when: str
) -> None:
    act, expected = OTHERS[what]
    create, acted = TagStore.create, []

    def between(store: TagStore, tag: lsm.Tag, **named: bool) -> lsm.Tag:
        stored = create(store, tag, **named)
        if not acted and when != "before":
            acted.append(what)
            by_others(lambda: act(table))
        return stored

    if when == "before":
        by_others(lambda: act(table))
    monkeypatch.setattr(TagStore, "create", between)
    table.create_tag("t")
    monkeypatch.undo()
    forget_all()
    opened = lsm.open_table(table.location)
    assert keys(opened, "t") == expected
    opened.compact(full=True)
    opened.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    assert keys(opened, "t") == expected
    assert opened.verify(deep=True).is_clean


def test_a_taken_name_is_kept(table: lsm.Table) -> None:
    table.create_tag("t")
    upsert(table, 3)
    with pytest.raises(AlreadyExistsError):
        table.create_tag("t")
    assert keys(table, "t") == [0, 1, 2]
