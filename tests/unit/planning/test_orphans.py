"""Listed, minus reachable, minus young."""

from dataclasses import dataclass

import pytest

from lsm_engine.base.errors import InvalidInputError
from lsm_engine.format.unfinished_upload import UnfinishedUpload
from lsm_engine.planning.expire import DAY_MILLIS, OrphanPlan, plan_orphans

NOW = 10 * DAY_MILLIS


@dataclass
class Listed:
    path: str
    modified_millis: int = 0
    size: int = 10
    is_directory: bool = False


def plan(
    *listed: Listed, reachable: frozenset[str] = frozenset(), age: int = DAY_MILLIS, **how: bool
) -> OrphanPlan:
    return plan_orphans(listed, reachable, store_now_millis=NOW, older_than_millis=age, **how)


def test_orphans() -> None:
    found = plan(
        Listed("bucket-0/lost"),
        Listed("bucket-0/live"),
        Listed("bucket-0/young", modified_millis=NOW - DAY_MILLIS),
        Listed("bucket-0/just-old-enough", modified_millis=NOW - DAY_MILLIS - 1),
        Listed("bucket-0/tomorrow", modified_millis=NOW + 5),
        Listed("bucket-0", is_directory=True),
        reachable=frozenset({"bucket-0/live"}),
    )
    assert [path for path, _ in found.orphans] == ["bucket-0/just-old-enough", "bucket-0/lost"]
    assert (found.listed_count, found.reachable_count, found.young_count) == (5, 1, 2)
    assert found.freed_bytes == 20


def test_uploads_go_by_their_age_alone() -> None:
    begun = [
        UnfinishedUpload(path="bucket-0/live", upload_id=str(age), begun_millis=NOW - age)
        for age in (0, DAY_MILLIS, DAY_MILLIS + 1)
    ]
    found = plan_orphans(
        [], {"bucket-0/live"}, store_now_millis=NOW, older_than_millis=DAY_MILLIS, uploads=begun
    )
    assert found.uploads == (begun[2],)
    assert found.young_count == 2
    assert not found.is_empty
    assert plan().is_empty


def test_young_orphans_need_force() -> None:
    with pytest.raises(InvalidInputError, match="younger than a day"):
        plan(age=DAY_MILLIS - 1)
    assert plan(Listed("x", modified_millis=NOW - 5), age=1, force=True).orphans == (("x", 10),)


def test_an_empty_listing_is_no_orphan() -> None:
    assert plan(reachable=frozenset({"a"})).orphans == ()
