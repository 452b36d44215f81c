"""The servers are what the tests of object stores take them for."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore
import psutil
import pytest
from obstore.exceptions import AlreadyExistsError

from tests.stores import servers
from tests.stores.raw_store import raw_store
from tests.stores.servers import StoreServer

ROUNDS, CREATES = 8, 16


@pytest.fixture(params=["s3", "azure"])
def server(request: pytest.FixtureRequest) -> StoreServer:
    found: StoreServer = request.getfixturevalue(request.param)
    return found


def winners_of_rounds(server: StoreServer, rounds: int = ROUNDS) -> list[int]:
    """How many of 16 creates of one name at once were acknowledged, round by round."""
    store = raw_store(server)

    def create(name: str, mine: int) -> bool:
        try:
            obstore.put(store, name, b"%d" % mine, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    with ThreadPoolExecutor(CREATES) as pool:
        return [
            sum(pool.map(create, [f"race/{number}"] * CREATES, range(CREATES)))
            for number in range(rounds)
        ]


def test_a_conditional_create_has_one_winner(server: StoreServer) -> None:
    assert winners_of_rounds(server) == [1] * ROUNDS


def test_names_need_no_escaping(server: StoreServer) -> None:
    store = raw_store(server)
    names = {f"dt=a%2Fb #~+ ä/{server.kind}/é", "plain/x"}
    for name in names:
        obstore.put(store, name, name.encode())
    assert {bytes(obstore.get(store, name).bytes()).decode() for name in names} == names


def test_a_request_with_another_key_is_refused(server: StoreServer) -> None:
    status, _ = server.answer("GET", f"/{server.bucket}/plain/x")
    assert status == 403 if server.kind == "s3proxy" else status in (401, 403, 404)


@pytest.mark.sweep
def test_s3mock_acknowledges_several_creates_of_one_name() -> None:
    with servers.s3mock() as server:
        assert max(winners_of_rounds(server, 5 * ROUNDS)) > 1


@pytest.mark.sweep
def test_moto_keeps_objects() -> None:
    with servers.moto() as server:
        store = raw_store(server)
        obstore.put(store, "a/b", b"here")
        assert bytes(obstore.get(store, "a/b").bytes()) == b"here"


def test_a_server_ends_with_its_test(tmp_path: Path) -> None:
    with servers.s3proxy(tmp_path) as server:
        assert psutil.pid_exists(server.pid)
    assert not psutil.pid_exists(server.pid)


def test_a_missing_tool_skips_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("LSM_PROMISED", "chromium")
    with pytest.raises(pytest.skip.Exception, match="needs mvn"), servers.s3proxy(tmp_path):
        pass


def test_a_missing_tool_fails_where_ci_promised_the_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("LSM_PROMISED", "s3proxy azurite")
    with pytest.raises(pytest.fail.Exception, match="CI has to install azurite"), servers.azurite():
        pass
