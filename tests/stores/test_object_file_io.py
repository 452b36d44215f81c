"""The FileIO contract on object stores, and what they add to it: retries, a probe, masked options."""

import itertools
import os
import pickle
import threading

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError

from lsm_engine.base.errors import (
    CommitUnknownError,
    InvalidOptionError,
    StorageError,
    UnsupportedError,
)
from lsm_engine.storage.bulk import write_many
from lsm_engine.storage.file_io import FileIO
from lsm_engine.storage.location import parse_location
from lsm_engine.storage.object_requests import Requests
from lsm_engine.storage.object_store import MARKER, WRITERS, ObjectFileIO, require_one_winner
from lsm_engine.storage.options import (
    NO_OPTIONS,
    S3,
    SentOptions,
    StorageOptions,
    check_storage_name,
    is_storage_option,
)
from lsm_engine.testing.file_io_suite import FileIOSuite
from tests.fault.doubles import ManualClock
from tests.stores.chaos_proxy import Faults, chaos_proxy
from tests.stores.servers import StoreServer
from tests.stores.stored_tables import location, options

_numbers = itertools.count()


def stored(server: StoreServer, path: str | None = None) -> ObjectFileIO:
    """Storage in a directory of its own, unless one is given."""
    where = path or f"wh {next(_numbers)}/db.db/t"
    return ObjectFileIO(parse_location(location(server, where)), StorageOptions(options(server)))


def take_as_proven(storage: ObjectFileIO) -> None:
    """Another endpoint is another store, which would be probed."""
    storage._requests.clients.proven.add(storage.location.warehouse)


class TestS3(FileIOSuite):
    @pytest.fixture
    def storage(self, s3: StoreServer) -> FileIO:
        return stored(s3)


class TestAzure(FileIOSuite):
    @pytest.fixture
    def storage(self, azure: StoreServer) -> FileIO:
        return stored(azure)


class TestGoogle(FileIOSuite):
    @pytest.fixture
    def storage(self, google: StoreServer) -> FileIO:
        return stored(google)


class TestMemory(FileIOSuite):
    @pytest.fixture
    def storage(self) -> FileIO:
        return ObjectFileIO(parse_location(f"memory://bucket/{next(_numbers)}/db.db/t"))


def test_a_lost_reply_of_a_publish_is_unknown_and_of_all_else_is_sent_again(
    s3: StoreServer,
) -> None:
    path = f"wh {next(_numbers)}/db.db/t"
    assert stored(s3, path).publish("before", b"0")  # the probe is done
    with chaos_proxy(s3, Faults(cut=1.0, verbs=frozenset({"PUT"}))) as proxy:
        lost = stored(proxy.server, path)
        take_as_proven(lost)
        with pytest.raises(CommitUnknownError):
            lost.publish("snapshot-1", b"1")
        assert proxy.counts()["PUT"] == 1
    assert stored(s3, path).read("snapshot-1") == b"1"
    with chaos_proxy(s3, Faults(cut=0.2, unavailable=0.1), seed=3) as proxy:
        unsteady = stored(proxy.server, path)
        for number in range(10):
            unsteady.write_new(f"d/{number}", b"%d" % number)
        assert [unsteady.read(f"d/{number}") for number in range(10)] == [
            b"%d" % number for number in range(10)
        ]
        unsteady.delete_many([f"d/{number}" for number in range(10)])
        assert unsteady.list("d") == []


def test_conflicts_and_throttling_are_waited_out(s3: StoreServer) -> None:
    path = f"wh {next(_numbers)}/db.db/t"
    with chaos_proxy(s3, Faults(conflict=0.4, unavailable=0.1, throttled=0.1), seed=5) as proxy:
        storage = stored(proxy.server, path)
        take_as_proven(storage)
        outcomes = []
        for number in range(10):
            try:
                outcomes.append(storage.publish(f"s/{number}", b"x"))
            except CommitUnknownError:  # taken, after an attempt that may have been applied
                outcomes.append(storage.read(f"s/{number}") == b"x")
        assert outcomes == [True] * 10
        assert proxy.refused()[409] > 0
    assert len(stored(s3, path).list("s")) == 10


@pytest.mark.parametrize(
    ("status", "code"), [(409, "ConditionalRequestConflict"), (409, ""), (503, "SlowDown")]
)
def test_a_name_is_taken_after_a_conflict_and_nobody_knows_by_whom_after_a_busy_gateway(
    status: int, code: str
) -> None:
    """Makers that are in each other's way get a conflict, wait, and find the name of the one who won."""
    where = parse_location(f"memory://bucket/{next(_numbers)}/db.db/t")
    answers = [
        GenericError(f"Server returned status code: {status} <Code>{code}</Code>"),
        AlreadyExistsError("Object at location name already exists"),
    ]

    def put(_: object) -> None:
        raise answers.pop(0)

    requests = Requests(where, NO_OPTIONS, clock=ManualClock(0))
    if status == 503:
        with pytest.raises(CommitUnknownError):
            requests.create("name", put, lambda: False)
    else:
        assert not requests.create("name", put, lambda: False)
    assert not answers


def test_a_throttled_hint_is_skipped(s3: StoreServer) -> None:
    with chaos_proxy(s3, Faults(throttled=1.0, verbs=frozenset({"PUT"}))) as proxy:
        with pytest.raises(StorageError):
            stored(proxy.server).replace("LATEST", b"1", may_skip=True)
        assert proxy.counts()["PUT"] == 1


def test_a_bucket_that_is_not_there_is_not_an_absent_file(s3: StoreServer) -> None:
    storage = ObjectFileIO(parse_location("s3://nobody/wh"), StorageOptions(options(s3)))
    with pytest.raises(StorageError, match="no such bucket"):
        storage.read("a")
    with pytest.raises(StorageError, match="no such bucket"):
        storage.list("")
    with pytest.raises(StorageError, match="no such bucket"):
        storage.publish("a", b"1")


def test_wrong_credentials_are_named_and_never_shown(s3: StoreServer) -> None:
    secret = "a-secret-that-nobody-may-see"
    given = {**options(s3), "s3.secret-key": secret}
    storage = ObjectFileIO(parse_location("s3://lake/wh"), StorageOptions(given))
    for act in (lambda: storage.read("a"), lambda: storage.publish("a", b"1")):
        with pytest.raises(StorageError, match="secret key") as caught:
            act()
        assert caught.value.facts["path"]
        assert secret not in str(caught.value) + repr(caught.value.__cause__)
    for shown in (repr(storage), repr(StorageOptions(given)), str(StorageOptions(given))):
        assert secret not in shown
        assert s3.access_key not in shown.replace("lsm_", "")
    assert secret.encode() not in pickle.dumps(storage)


def test_pickled_storage_reads_its_secrets_where_it_comes_out(
    s3: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = stored(s3)
    storage.write_new("a", b"1")
    assert pickle.loads(pickle.dumps(storage)).read("a") == b"1"  # in this process they are known
    monkeypatch.setattr("lsm_engine.storage.options._secrets_by_key", {})
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    far = pickle.loads(pickle.dumps(storage))
    with pytest.raises(InvalidOptionError, match="LSM_STORAGE_S3_ACCESS_KEY"):
        far.read("a")
    monkeypatch.setenv("LSM_STORAGE_S3_ACCESS_KEY", s3.access_key)
    monkeypatch.setenv("LSM_STORAGE_S3_SECRET_KEY", s3.secret_key)
    assert pickle.loads(pickle.dumps(far)).read("a") == b"1"


def test_an_aborted_upload_leaves_no_parts(s3: StoreServer) -> None:
    storage = stored(s3)
    everything = ObjectFileIO(parse_location("s3://lake"), StorageOptions(options(s3)))
    before = {each.path for each in everything.list_files("")}
    output = storage.open_output("big")
    for _ in range(5):
        output.write(b"x" * (5 << 20))
    output.abort()
    assert not storage.exists("big")
    # S3Proxy keeps parts of uploads as files of the bucket until they are aborted or completed.
    assert {each.path for each in everything.list_files("")} == before


class Lying:
    """A store whose creates win as they like; what it keeps is what came last."""

    endpoint = "liar"

    def __init__(self, wins) -> None:
        self.wins = wins
        self.kept: dict[str, bytes] = {}
        self.lock = threading.Lock()

    def create(self, name, data):
        with self.lock:
            won = self.wins(name in self.kept)
            if won:
                self.kept[name] = data
            return won

    def read(self, name):
        return self.kept.get(name, b"")

    def put(self, name, data):
        self.kept[name] = data

    def delete(self, names):
        for name in names:
            self.kept.pop(name, None)

    def all_at_once(self, acts):
        return [act() for act in acts]


@pytest.mark.parametrize("wins", [lambda _: True, lambda _: False], ids=["all", "none"])
def test_a_store_that_ignores_the_condition_is_refused(wins) -> None:
    store = Lying(wins)
    with pytest.raises(UnsupportedError, match="liar"):
        require_one_winner(store, "id")
    assert store.kept == {}  # neither marker nor leftovers


def test_a_sound_store_is_probed_once_for_each_endpoint() -> None:
    store = Lying(lambda taken: not taken)
    require_one_winner(store, "id")
    assert set(store.kept) == {MARKER}
    store.wins = lambda _: True
    require_one_winner(store, "again")  # the marker is trusted
    store.endpoint = "another"  # the bucket was copied
    with pytest.raises(UnsupportedError):
        require_one_winner(store, "id")


def test_a_lost_winner_of_the_probe_is_no_lie() -> None:
    store = Lying(lambda taken: not taken)
    create = store.create

    def lost(name, data):
        if create(name, data):
            raise CommitUnknownError("no answer")
        return False

    store.create = lost
    require_one_winner(store, "id")


def test_the_probe_runs_before_the_first_publish_and_once(s3: StoreServer) -> None:
    with chaos_proxy(s3) as proxy:
        storage = stored(proxy.server)
        assert storage.publish("a", b"1")
        assert proxy.counts()["PUT"] == 8 * WRITERS + 2  # all rounds, the marker, the file
        proxy.forget()
        assert storage.publish("b", b"1")
        assert proxy.counts()["PUT"] == 1
        warehouse = parse_location(location(proxy.server, storage.location.warehouse))
        kept = ObjectFileIO(warehouse, storage.options).list("")
        assert [each.name for each in kept if not each.is_directory] == [MARKER]


def test_more_files_than_fit_in_a_page_or_a_batch(azure: StoreServer) -> None:
    storage = stored(azure)
    write_many(storage, {f"d/{number:04d}": b"" for number in range(300)})
    assert len(list(storage.list_files(""))) == len(storage.list("d")) == 300
    storage.delete_many([f"d/{number:04d}" for number in range(301)])
    assert storage.list("") == []


def test_s3mock_is_refused_at_each_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it: LSM_PROBE_STARTS=50 python -m pytest tests/stores/test_object_file_io.py -k s3mock."""
    from lsm_engine.storage import object_requests
    from tests.stores import servers

    starts = int(os.environ.get("LSM_PROBE_STARTS", "1"))
    with servers.s3mock() as server:
        for _ in range(starts):
            # A process that has asked nothing yet.
            monkeypatch.setattr(object_requests.shared, "_made", {})
            storage = stored(server)
            with pytest.raises(UnsupportedError, match="conditional creates"):
                storage.publish("a", b"1")
            assert not storage.exists("a")


def test_obstore_reports_what_this_is_built_on() -> None:
    """Its versions are bounded; these are the exceptions that answers are taken from."""
    from obstore import exceptions

    assert {
        "AlreadyExistsError",
        "PreconditionError",
        "PermissionDeniedError",
        "GenericError",
    } <= set(dir(exceptions))
    assert obstore.__version__


def test_options_that_are_sent_keep_their_secrets_and_show_none() -> None:
    sent = SentOptions({"s3.secret-key": "a-secret", "s3.endpoint": "http://here"})
    come = pickle.loads(pickle.dumps(sent))
    assert come == sent
    assert come.settings(S3, {}) == {"secret_key": "a-secret", "endpoint": "http://here"}
    assert "a-secret" not in repr(come)
    assert [is_storage_option(name) for name in ("fs.s3a.access.key", "s3.kee", "path")] == [
        True, False, False,
    ]  # fmt: skip
    with pytest.raises(InvalidOptionError, match=r"s3\.kee"):
        check_storage_name("s3.kee")
    check_storage_name("path")
