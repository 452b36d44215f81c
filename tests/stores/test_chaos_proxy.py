"""The proxy counts, delays, refuses and cuts, and changes nothing else."""

import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, BaseError

from tests.stores.chaos_proxy import CUT, Faults, chaos_proxy
from tests.stores.raw_store import raw_store
from tests.stores.servers import StoreServer


@pytest.fixture(params=["s3", "azure"])
def server(request: pytest.FixtureRequest) -> StoreServer:
    found: StoreServer = request.getfixturevalue(request.param)
    return found


def test_requests_pass_signed_and_are_counted_by_verb(server: StoreServer) -> None:
    body = os.urandom(3_000_000)
    with chaos_proxy(server) as proxy:
        store = raw_store(proxy.server)
        obstore.put(store, "counted/a b", body, use_multipart=False)
        assert bytes(obstore.get(store, "counted/a b").bytes()) == body
        assert bytes(obstore.get_range(store, "counted/a b", start=10, end=20)) == body[10:20]
        assert obstore.head(store, "counted/a b")["size"] == len(body)
        listed = [entry["path"] for page in obstore.list(store, "counted") for entry in page]
        assert listed == ["counted/a b"]
        obstore.delete(store, "counted/a b")
        with pytest.raises(FileNotFoundError):
            obstore.head(store, "counted/a b")
        counts = proxy.counts()
        proxy.forget()
        assert proxy.counts() == {}
    # Both stores delete in batches, by POST.
    assert counts == {"PUT": 1, "GET": 2, "HEAD": 2, "LIST": 1, "POST": 1}


def test_a_multipart_upload_passes(server: StoreServer) -> None:
    body = os.urandom(11_000_000)
    with chaos_proxy(server) as proxy:
        store = raw_store(proxy.server)
        obstore.put(store, "parts", body, chunk_size=5 << 20)
        assert bytes(obstore.get(store, "parts").bytes()) == body
        assert proxy.counts()["PUT"] >= 3


def test_a_condition_that_fails_is_the_servers_answer(s3: StoreServer) -> None:
    with chaos_proxy(s3) as proxy:
        store = raw_store(proxy.server)
        obstore.put(store, "taken", b"1", mode="create", use_multipart=False)
        with pytest.raises(AlreadyExistsError):
            obstore.put(store, "taken", b"2", mode="create", use_multipart=False)
        assert [request.status for request in proxy.requests] == [200, 412]
        assert all(request.conditional for request in proxy.requests)
        assert proxy.refused() == {}


def test_a_cut_request_has_been_applied(server: StoreServer) -> None:
    with chaos_proxy(server, Faults(cut=1.0, verbs=frozenset({"PUT"}))) as proxy:
        store = raw_store(proxy.server)
        with pytest.raises(BaseError):
            obstore.put(store, "cut", b"there", mode="create", use_multipart=False)
        assert proxy.refused() == {CUT: 1}
        assert bytes(obstore.get(store, "cut").bytes()) == b"there"


@pytest.mark.parametrize(
    ("faults", "status"),
    [(Faults(unavailable=1.0), 503), (Faults(throttled=1.0), 429), (Faults(conflict=1.0), 409)],
    ids=["unavailable", "throttled", "conflict"],
)
def test_a_refused_request_never_reaches_the_server(
    s3: StoreServer, faults: Faults, status: int
) -> None:
    name = f"refused/{status}"
    with chaos_proxy(s3, faults) as proxy:
        with pytest.raises((BaseError, AlreadyExistsError)):
            obstore.put(raw_store(proxy.server), name, b"x", mode="create", use_multipart=False)
        assert proxy.refused() == {status: 1}
    with pytest.raises(FileNotFoundError):
        obstore.head(raw_store(s3), name)


def test_conflicts_are_for_conditional_writes(s3: StoreServer) -> None:
    with chaos_proxy(s3, Faults(conflict=1.0)) as proxy:
        obstore.put(raw_store(proxy.server), "unconditional", b"x", use_multipart=False)
        assert proxy.refused() == {}


def test_shares_are_kept(s3: StoreServer) -> None:
    with chaos_proxy(s3, Faults(unavailable=0.2, conflict=0.3), seed=7) as proxy:
        store = raw_store(proxy.server)
        for number in range(200):
            try:
                obstore.put(store, f"n/{number}", b"x", mode="create", use_multipart=False)
            except (BaseError, AlreadyExistsError):
                continue
        refused = proxy.refused()
    assert 20 <= refused[503] <= 60
    assert 35 <= refused[409] <= 85


def test_a_delay_shows_rounds_and_what_was_in_flight(s3: StoreServer) -> None:
    with chaos_proxy(s3, Faults(delay=0.2)) as proxy:
        store = raw_store(proxy.server)
        started = time.monotonic()
        obstore.put(store, "slow", b"x", use_multipart=False)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: obstore.get(store, "slow").bytes(), range(8)))
        assert time.monotonic() - started >= 0.4
        assert proxy.rounds() == 2
        assert proxy.in_flight() == 8


def test_a_request_whose_client_hangs_up_has_ended(s3: StoreServer) -> None:
    with chaos_proxy(s3, Faults(delay=0.1)) as proxy:
        body = b"PUT /lake/half HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf"
        with socket.create_connection((proxy.server.host, proxy.server.port)) as client:
            client.sendall(body)
        deadline = time.monotonic() + 20
        while [one.ended for one in proxy.requests] in ([], [float("inf")]):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert [one.status for one in proxy.requests] == [CUT]
