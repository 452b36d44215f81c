"""Commits of clients through the server: on the right base, with their files, and once."""

import threading
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.api.lineage_sync import CatalogListener
from lsm_engine.catalog.lineage.lineage import Lineage
from lsm_engine.commit import commit as engine
from lsm_engine.metadata import manifests
from tests.served import LANDED, LOST, Prepared, prepared, serving

COLUMNS = {"id": "BIGINT", "v": "STRING"}


@pytest.fixture
def orders(served, database):
    return served.catalog.create_table(f"{database}.orders", COLUMNS, "id", options={"bucket": 1})


def rows(*ids: int, v: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [v] * len(ids)})


def test_a_commit_is_in_the_table_and_in_the_lineage_under_the_clients_name(served, orders) -> None:
    orders.upsert(rows(1, 2))
    assert (
        served.commit(orders.name, prepared(orders, rows(2, 3, v="b"), commit_user="etl")).json
        == LANDED
    )
    assert orders.to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "b"},
    ]  # fmt: skip
    snapshots = served.catalog.lineage.snapshots(lsm.TableName.parse(orders.name)).to_pylist()
    own = [row for row in snapshots if row["commit_user"] == "etl"]
    assert [row["snapshot_id"] for row in own] == [2]
    assert orders.maintenance.verify(deep=True).is_clean


def test_the_first_snapshot_of_a_table_is_committed_on_nothing(served, orders) -> None:
    assert served.commit(orders.name, prepared(orders, rows(1))).json == LANDED
    assert orders.count() == 1
    orders.upsert(rows(2))
    assert orders.count() == 2


def test_the_same_commit_again_is_in_the_table_once(served, orders) -> None:
    first = prepared(orders, rows(1))
    assert served.commit(orders.name, first).json == LANDED
    assert served.commit(orders.name, first).json == LANDED
    orders.upsert(rows(2))
    assert served.commit(orders.name, first).json == LANDED
    assert [snapshot.id for snapshot in orders.snapshots()] == [1, 2]
    assert orders.count() == 2


def test_of_two_requests_at_once_with_one_commit_both_learn_that_it_landed(served, orders) -> None:
    orders.upsert(rows(1))
    commit = prepared(orders, rows(2))
    answers: list[object] = []
    threads = [
        threading.Thread(target=lambda: answers.append(served.commit(orders.name, commit).json))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [LANDED] * 4
    assert [snapshot.id for snapshot in orders.snapshots()] == [1, 2]


def test_a_commit_on_another_base_is_lost(served, orders) -> None:
    orders.upsert(rows(1))
    late = prepared(orders, rows(2))
    orders.upsert(rows(3))
    assert served.commit(orders.name, late).json == LOST
    wrong = prepared(orders, rows(4))
    assert served.commit(orders.name, Prepared(wrong.members, "another")).json == LOST
    beyond = Prepared({**wrong.members, "id": wrong.members["id"] + 1}, wrong.base_uuid)
    assert served.commit(orders.name, beyond).json == LOST
    assert sorted(orders.to_arrow()["id"].to_pylist()) == [1, 3]
    assert served.commit(orders.name, wrong).json == LANDED


def test_a_commit_without_a_base_has_to_hold_the_live_files(served, orders) -> None:
    """A client that read a snapshot which was rolled back since would bring its rows back."""
    orders.upsert(rows(1))
    orders.upsert(rows(2))
    stale = prepared(orders, rows(3))
    orders.rollback_to(1)
    orders.upsert(rows(4))
    refused = served.commit(orders.name, Prepared(stale.members, None))
    assert (refused.status, refused.json["code"]) == (409, 409)
    assert "not made on the newest" in refused.json["message"]
    assert sorted(orders.to_arrow()["id"].to_pylist()) == [1, 4]
    assert (
        served.commit(orders.name, Prepared(prepared(orders, rows(5)).members, None)).json == LANDED
    )


def test_a_commit_to_a_table_that_was_made_again_is_refused(served, orders) -> None:
    path = f"databases/{orders.name.replace('.', '/tables/')}"
    former_id = served.get(path).json["id"]
    served.catalog.drop_table(orders.name)
    again = served.catalog.create_table(orders.name, COLUMNS, "id", options={"bucket": 1})
    refused = served.commit(orders.name, prepared(again, rows(1)), tableId=former_id)
    assert (refused.status, refused.json["resourceType"]) == (404, "TABLE")
    assert again.latest_snapshot() is None
    served.catalog.drop_table(orders.name)
    gone = served.post(f"{path}/commit", {"tableId": former_id, "snapshot": {}})
    assert (gone.status, gone.json["resourceType"]) == (404, "TABLE")


@pytest.mark.parametrize(
    "kind", ["bucket-0/*.parquet", "manifest/manifest-list-*", "manifest/manifest-*"]
)
def test_a_commit_whose_files_are_missing_is_refused(served, orders, kind) -> None:
    folder = Path(orders.location)
    orders.upsert(rows(1))
    before = set(folder.rglob("*"))
    commit = prepared(orders, rows(2))
    missing = next(path for path in folder.glob(kind) if path not in before)
    missing.unlink()
    refused = served.commit(orders.name, commit)
    assert refused.status == 409, refused.json
    assert "missing" in refused.json["message"]
    assert orders.count() == 1


@pytest.mark.parametrize(
    ("member", "value", "status"),
    [
        ("totalRecordCount", 99, 400),
        ("schemaId", 7, 400),
        ("deltaManifestList", "../../../etc/passwd", 400),
        ("commitKind", "GUESS", 501),
        ("id", "one", 400),
        ("id", 0, 400),
        ("deltaManifestListSize", 1, 400),
        ("baseManifestListSize", -1, 400),
        ("statistics", "stat-missing", 409),
        ("version", 99, 501),
    ],
)
def test_a_snapshot_that_fits_nothing_is_refused(served, orders, member, value, status) -> None:
    orders.upsert(rows(1))
    commit = prepared(orders, rows(2))
    refused = served.commit(
        orders.name, Prepared({**commit.members, member: value}, commit.base_uuid)
    )
    assert refused.status == status, refused.json
    assert [snapshot.id for snapshot in orders.snapshots()] == [1]


def test_counts_that_the_files_do_not_make_are_refused(served, orders) -> None:
    orders.upsert(rows(1))
    commit = prepared(orders, rows(2))
    commit.members.update(deltaRecordCount=5, totalRecordCount=6)
    refused = served.commit(orders.name, commit)
    assert (refused.status, "deltaRecordCount" in refused.json["message"]) == (400, True)
    assert orders.count() == 1


def test_a_base_list_without_the_live_files_is_refused_under_the_right_uuid(served, orders) -> None:
    """It would take rows away without a word."""
    orders.upsert(rows(1))
    former = orders.latest_snapshot()
    orders.upsert(rows(2))
    commit = prepared(orders, rows(3))
    commit.members["baseManifestList"] = former.base_manifest_list
    commit.members["baseManifestListSize"] = former.base_manifest_list_size
    assert served.commit(orders.name, commit).status == 409
    assert sorted(orders.to_arrow()["id"].to_pylist()) == [1, 2]


def test_files_of_another_number_of_buckets_are_refused(served, orders) -> None:
    """Their keys would be looked for in other buckets."""
    orders.upsert(rows(1))
    late = prepared(orders, rows(2))
    orders.maintenance.rescale(2)
    again = prepared(served.catalog.table(orders.name), rows(3))
    for member in ("deltaManifestList", "deltaManifestListSize", "schemaId"):
        again.members[member] = late.members[member]
    refused = served.commit(orders.name, again)
    assert (refused.status, "written for 1 bucket" in refused.json["message"]) == (409, True)
    assert served.catalog.table(orders.name).count() == 1


def test_the_lineage_has_a_commit_before_its_client_can_expire_it(served, orders) -> None:
    commit = prepared(orders, rows(1), commit_user="etl")
    assert served.commit(orders.name, commit).json == LANDED
    for file in (Path(orders.location) / "snapshot").iterdir():
        file.unlink()  # as other clients expire: without a word
    recorded = served.catalog.lineage.snapshots(lsm.TableName.parse(orders.name)).to_pylist()
    assert [row["commit_user"] for row in recorded] == ["etl"]


def test_files_that_are_not_live_cannot_be_taken_away(served, orders) -> None:
    """The delta of a compaction names files as deleted; a second one on the same files must not land."""
    for number in range(3):
        orders.upsert(rows(number))
    compaction = orders.compact(full=True)
    assert compaction is not None
    newest = orders.latest_snapshot()
    again = prepared(orders, rows(9))
    members = {**again.members, "commitKind": "COMPACT"}
    members["deltaManifestList"] = newest.delta_manifest_list
    members["deltaRecordCount"], members["totalRecordCount"] = 0, newest.total_record_count
    refused = served.commit(orders.name, Prepared(members, again.base_uuid))
    assert refused.status == 409, refused.json
    assert orders.count() == 3


def test_properties_that_steer_the_protocol_do_not_come_from_clients(served, orders) -> None:
    orders.upsert(rows(1))
    commit = prepared(orders, rows(2))
    commit.members["properties"] = {
        "lsm.rollback-to": "1", "lsm.renamed-to": "x", "lsm.base": "y", "lsm.run.id": "run-7", "own": "z",
    }  # fmt: skip
    assert served.commit(orders.name, commit).json == LANDED
    stored = orders.latest_snapshot().properties
    assert (stored["lsm.run.id"], stored["own"]) == ("run-7", "z")
    assert "lsm.rollback-to" not in stored
    assert "lsm.renamed-to" not in stored
    assert stored["lsm.base"] == orders.snapshot(1).delta_manifest_list


def test_a_snapshot_whose_id_has_expired_is_unknown(served, orders) -> None:
    lost_reply = prepared(orders, rows(1))
    assert served.commit(orders.name, lost_reply).json == LANDED
    for number in range(2, 5):
        orders.upsert(rows(number))
    orders.maintenance.expire(retain_max=1, retain_min=1, older_than="0 s")
    unknown = served.commit(orders.name, lost_reply)
    assert (unknown.status, unknown.headers["x-lsm-error"].split()[0]) == (
        500,
        "CommitUnknownError",
    )
    assert "expired" in unknown.json["message"]
    assert orders.count() == 4


def test_a_branch_is_committed_to_by_its_own_name(served, orders) -> None:
    orders.upsert(rows(1))
    orders.tags.create("v1")
    orders.branches.create("fix", "v1")
    branch = orders.branch("fix")
    base = branch.latest_snapshot()
    database = orders.name.partition(".")[0]
    shown = served.get(f"databases/{database}/tables/orders$branch_fix/snapshot").json
    assert shown["snapshot"]["snapshot"]["uuid"] == base.uuid


@pytest.mark.parametrize("between", ["drop", "rename", "made anew", "rollback", "branch deleted"])
def test_a_retry_after_a_lost_reply_and_a_change_of_the_table_has_one_outcome(
    served, orders, between
) -> None:
    """The first request landed, and the client does not know: what it sends again is refused, or is there once."""
    orders.upsert(rows(1))
    path = f"databases/{orders.name.replace('.', '/tables/')}"
    given_id = served.get(path).json["id"]
    catalog, target = served.catalog, orders
    if between == "branch deleted":
        orders.tags.create("v1")
        orders.branches.create("fix", "v1")
        target = orders.branch("fix")
        path += "$branch_fix"
    commit = prepared(target, rows(2))
    body = {"tableId": given_id, "baseSnapshotUuid": commit.base_uuid, "snapshot": commit.members}
    assert served.post(f"{path}/commit", body).json == LANDED
    renamed = orders.name + "_moved"
    match between:
        case "drop":
            catalog.drop_table(orders.name)
        case "rename":
            catalog.rename_table(orders.name, renamed)
        case "made anew":
            catalog.drop_table(orders.name)
            orders = catalog.create_table(orders.name, COLUMNS, "id", options={"bucket": 1})
            orders.upsert(rows(7))
        case "rollback":
            orders.rollback_to(1)
        case _:
            orders.branches.delete("fix")
    addresses = [path, f"{path}_moved"] if between == "rename" else [path]
    for address in addresses:
        for sent in (body, {**body, "tableId": None}):
            refused = served.post(f"{address}/commit", sent)
            # Without an id the renamed table is the one of this commit, which is in it already. After a rollback the
            # base is the newest again, and the commit is in the table once.
            is_renamed = (address, sent["tableId"]) == (f"{path}_moved", None)
            if is_renamed or between == "rollback":
                assert refused.json == LANDED
            else:
                assert refused.status in (404, 409) or refused.json == LOST, refused.body
    expected = {"made anew": [7], "rename": [1, 2], "rollback": [1, 2], "branch deleted": [1]}
    if between == "drop":
        assert orders.name not in catalog.list_tables()
        return
    left = catalog.table(renamed if between == "rename" else orders.name)
    assert sorted(left.to_arrow()["id"].to_pylist()) == expected[between]
    assert left.maintenance.verify(deep=True).is_clean


class Killed(BaseException):
    """The end of a server in the middle of a commit: nothing of it is carried on."""


@pytest.mark.parametrize(
    "moment", ["publish", "is_replaced", "report", "AutoTags", "committed_beside_others"]
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_whose_server_died_is_there_once_after_the_retry_at_the_other_server(
    served, orders, monkeypatch, moment, when
) -> None:
    orders.upsert(rows(1))
    commit = prepared(orders, rows(2))
    home = CatalogListener if moment == "committed_beside_others" else engine
    act = getattr(home, moment)

    def dies(*given, **options):
        if when == "after":
            act(*given, **options)
        raise Killed

    monkeypatch.setattr(home, moment, dies)
    with serving(served.catalog) as other:
        assert served.commit(orders.name, commit).status == 500
        monkeypatch.setattr(home, moment, act)
        assert other.commit(orders.name, commit).json == LANDED
        assert other.commit(orders.name, commit).json == LANDED
    assert [snapshot.id for snapshot in orders.snapshots()] == [1, 2]
    assert sorted(orders.to_arrow()["id"].to_pylist()) == [1, 2]
    recorded = served.catalog.lineage.snapshots(lsm.TableName.parse(orders.name)).to_pylist()
    assert [row["snapshot_id"] for row in recorded] == [2, 1]
    assert orders.maintenance.verify(deep=True).is_clean


def recorded(served, orders) -> dict[int, str]:
    """Return what is recorded as live without a sync, each snapshot with its delta manifest list."""
    names = served.catalog._names
    return names.lineage.recorded_states(lsm.TableName.parse(orders.name))["main"].live


def stored(orders) -> dict[int, str]:
    return {snapshot.id: snapshot.delta_manifest_list for snapshot in orders.snapshots()}


def test_the_lineage_of_a_commit_on_the_newest_recorded_snapshot_does_not_read_the_others(
    served, orders, monkeypatch
) -> None:
    orders.upsert(rows(1))
    assert served.commit(orders.name, prepared(orders, rows(2))).json == LANDED
    commit = prepared(orders, rows(3))
    with monkeypatch.context() as patched:
        patched.setattr(Lineage, "recorded_states", lambda *_: pytest.fail("read again"))
        assert served.commit(orders.name, commit).json == LANDED
    assert recorded(served, orders) == stored(orders)


@pytest.mark.parametrize("outside", ["nothing recorded", "commit", "rollback"])
def test_the_lineage_of_a_commit_on_another_snapshot_is_synced(served, orders, outside) -> None:
    orders.upsert(rows(1))
    if outside != "nothing recorded":
        assert served.commit(orders.name, prepared(orders, rows(2))).json == LANDED
    # Another process, whose catalog does not hear of it.
    other = lsm.open_table(orders.location)
    if outside == "rollback":
        other.rollback_to(1)
    other.upsert(rows(3))
    assert served.commit(orders.name, prepared(orders, rows(4))).json == LANDED
    assert recorded(served, orders) == stored(orders)


def test_a_server_keeps_what_it_has_decoded_for_the_next_request(
    served, orders, monkeypatch
) -> None:
    monkeypatch.setattr(manifests, "_shares_local", threading.Event())
    manifests.share_local()
    orders.upsert(rows(1))
    decoded: list[str] = []
    decode = manifests.decode_manifest_list

    def noted(data, **options):
        decoded.append(options["file_name"])
        return decode(data, **options)

    monkeypatch.setattr(manifests, "decode_manifest_list", noted)
    for number in (2, 3):
        commit = prepared(orders, rows(number))
        decoded.clear()
        assert served.commit(orders.name, commit).json == LANDED
    names = [name.rpartition("/")[2] for name in decoded]
    own_lists = {commit.members[member] for member in ("baseManifestList", "deltaManifestList")}
    # The lists of the base were decoded by the request before, the own ones for the commit and for the lineage together.
    assert (len(names), set(names) - own_lists) == (len(set(names)), set())
    manifests.forget_shared()
