"""`lsm ui`: its pages, what it refuses, and that nothing a table holds becomes markup."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import lsm_engine as lsm
from lsm_engine.catalog.provenance import Input, Run, provenance_properties
from lsm_engine.ui.command import PageServer, ui
from lsm_engine.ui.pages import TableState
from lsm_engine.ui.parts import Html, address, element, fact_list
from lsm_engine.ui.routes import POLICY, HealthBoard, Site

UNPARSABLE = ("http://[", "http://a:b", "http://a:0", "http://a:70000", "http://:3000")
HOSTILE = "<script>alert('1')</script>"
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


def fill(root: Path) -> None:
    with lsm.open_catalog(f"sqlite:///{root}/catalog.db", warehouse=str(root)) as catalog:
        options = {"bucket": "1", "write-only": "true"}
        orders = catalog.create_table(
            "shop.orders", COLUMNS, primary_key=["id"], options=options, comment=HOSTILE
        )
        orders.alter(lsm.SetColumnComment(name="name", comment=HOSTILE))
        run = Run(run_id=HOSTILE, engine="local", kind="upsert", asset_key="javascript:alert(1)")
        made = provenance_properties(run, [Input(dataset=HOSTILE, version="javascript:alert(1)")])
        for at in range(6):
            orders.upsert([{"id": 1, "name": HOSTILE}, {"id": at, "name": "a"}], properties=made)
        orders.create_tag("monday", 2)
        orders.create_tag("<script>alert(2)<script>", 3)
        orders.create_tag("javascript:alert(3)", 4)
        orders.create_branch("fix", "monday")
        catalog.create_table(
            "shop.parts", COLUMNS, primary_key=["id", "name"], partitioned_by=["name"]
        ).upsert([{"id": 1, "name": HOSTILE.replace("/", "")}])
        catalog.create_table("shop.clicks", COLUMNS).append([{"id": 1, "name": HOSTILE}])
        catalog.create_table("shop.empty", COLUMNS, primary_key=["id"])


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    text: str


class Browser:
    """One request at a time, with the headers that a test wants."""

    def __init__(self, port: int) -> None:
        self.port = port

    def __call__(
        self, target: str, method: str = "GET", host: str | None = None, body: bytes | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            headers = {} if host is None else {"Host": host}
            connection.request(method, target, body=body, headers=headers)
            got = connection.getresponse()
            return Answer(got.status, dict(got.getheaders()), got.read().decode())
        finally:
            connection.close()

    def raw(self, request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(request)
            return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.fixture(scope="module")
def lake(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("lake")
    fill(root)
    return root


@pytest.fixture(scope="module")
def browse(lake: Path) -> Iterator[Browser]:
    with (
        pytest.MonkeyPatch.context() as patched,
        lsm.open_catalog(f"sqlite:///{lake}/catalog.db", warehouse=str(lake)) as catalog,
        PageServer(Site(catalog, lambda words: f"lsm {words}"), 0) as server,
    ):
        patched.setattr("lsm_engine.ui.routes.WAIT_SECONDS", 60)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Browser(server.server_address[1])
        server.shutdown()
        thread.join()


class Elements(HTMLParser):
    """What a browser would make of a page: scripts without a source, attributes that act, links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.inline, self.acting, self.links = 0, [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.inline += tag == "script" and "src" not in found
        self.acting += [name for name in found if name.startswith("on") or name == "style"]
        self.links += [found[name] for name in ("href", "src", "action") if name in found]


PAGES = [
    "/",
    "/?q=orders",
    "/t/shop.orders",
    "/t/shop.orders@fix",
    "/t/shop.orders/snapshots",
    "/t/shop.orders/snapshots?from=3",
    "/t/shop.orders/snapshot/1",
    "/t/shop.orders/snapshot/6",
    "/t/shop.orders/tag/monday",
    "/t/shop.orders/tag/javascript:alert(3)",
    "/t/shop.orders/tag/%3Cscript%3Ealert(2)%3Cscript%3E",
    "/t/shop.orders/tree",
    "/t/shop.orders/tree?tag=monday",
    "/t/shop.orders/tree?bucket=0",
    "/t/shop.orders/key",
    "/t/shop.orders/key?id=1",
    "/t/shop.orders/key?id=1&snapshot=2",
    "/t/shop.orders/key?id=%3Cscript%3E",
    "/t/shop.parts/tree",
    "/t/shop.parts/key?id=1&name=%3Cscript%3Ealert(%271%27)%3Cscript%3E",
    "/t/shop.clicks",
    "/t/shop.clicks/tree?bucket=0",
    "/t/shop.clicks/key",
    "/t/shop.empty",
    "/t/shop.empty/snapshots",
    "/t/shop.empty/tree",
]


@pytest.mark.parametrize("target", PAGES)
def test_a_page_shows_values_as_text_and_links_within(browse: Browser, target: str) -> None:
    got = browse(target)
    assert got.status == 200, got.text
    assert got.headers["Content-Security-Policy"] == POLICY
    assert got.headers["X-Content-Type-Options"] == "nosniff"
    page = Elements(got.text)
    assert (page.inline, page.acting) == (0, [])
    assert page.links
    assert all(re.match(r"/(?![/\\])|#", link) for link in page.links), page.links


def test_every_link_of_the_pages_leads_somewhere(browse: Browser) -> None:
    waiting, seen = ["/"], set()
    while waiting:
        target = waiting.pop().partition("#")[0]
        if target in seen or not target:
            continue
        seen.add(target)
        got = browse(target)
        assert got.status == 200, target
        if "text/html" in got.headers["Content-Type"] and not target.startswith("/lineage"):
            waiting += Elements(got.text).links
    assert {"/t/shop.orders/snapshot/6", "/t/shop.orders/tag/monday", "/ui.css"} <= seen


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("/", ["shop.orders", "1 warning", "shop.empty"]),
        ("/t/shop.orders", ["compaction is due in 1 bucket", "lsm compact shop.orders", "fix"]),
        ("/t/shop.orders", ["&lt;script&gt;alert(&#x27;1&#x27;)&lt;/script&gt;"]),
        ("/t/shop.orders/snapshots", ["1 to 6", "6 snapshots", "monday", "javascript:alert(3)"]),
        ("/t/shop.orders/snapshot/6", ["Files that changed", "added", "snapshot before"]),
        ("/t/shop.orders/tag/monday", ["Tag monday", "for ever"]),
        ("/t/shop.orders/tree", ["bucket 0", "6 sorted runs", "L0"]),
        ("/t/shop.orders/tree?tag=monday", ["tag monday, snapshot 2", "2 sorted runs"]),
        ("/t/shop.orders/tree?bucket=0", ["Files of bucket 0, snapshot 6", ".parquet"]),
        ("/t/shop.orders/key?id=1", ["Versions, in merge order", "alert(&#x27;1&#x27;)"]),
        ("/t/shop.orders/key?id=x", ["id is BIGINT NOT NULL, which &#x27;x&#x27; does not fit"]),
        ("/t/shop.clicks/key", ["no primary key"]),
        ("/t/shop.empty/snapshots", ["nothing has been committed yet"]),
    ],
)
def test_pages_show_what_lsm_knows(browse: Browser, target: str, shown: list[str]) -> None:
    text = browse(target).text
    assert [each for each in shown if each not in text] == []


@pytest.mark.parametrize(
    ("target", "status", "shown"),
    [
        ("/nope", 404, "there is no page /nope"),
        ("/t/shop.ordrs", 404, "did you mean &#x27;shop.orders&#x27;"),
        ("/t/shop.orders/nope", 404, "a table has no page nope"),
        ("/t/shop.orders/snapshot/99", 404, "the newest is 6"),
        ("/t/shop.orders/tag/%3Cimg%20onerror=x%3E", 404, "/t/shop.orders/snapshots"),
        ("/t/shop.orders/snapshot/six", 400, "whole number"),
        ("/t/shop.orders/snapshot/" + "9" * 4000, 400, "whole number"),
        ("/t/shop.orders/snapshot/%D9%A3", 400, "whole number"),
        ("/t/shop.orders/tree?bucket=-1", 400, "whole number"),
        ("/?page=9999999999999999999", 400, "whole number"),
        ("/t/..%2F..%2Fetc%2Fpasswd", 400, ""),
        ("/t/%2Fetc", 400, ""),
        ("/%ff", 400, "cannot be decoded"),
        ("/?" + "&".join(f"a{at}=1" for at in range(200)), 400, "cannot be decoded"),
        ("//evil.example/", 404, "there is no page"),
        ("/ui.css/../server.py", 404, "there is no page"),
        ("/lineage?table=shop.nope", 404, "no such table"),
    ],
)
def test_what_is_missing_or_wrong_leads_on(
    browse: Browser, target: str, status: int, shown: str
) -> None:
    got = browse(target)
    assert got.status == status, got.text
    assert shown in got.text
    page = Elements(got.text)
    assert (page.inline, page.acting) == (0, [])
    assert "/" in page.links


def test_health_says_that_it_is_a_glance_and_what_looks_further(browse: Browser) -> None:
    """The files are not opened for it: a table is not called healthy."""
    for target, commands in (
        ("/", ("lsm doctor<", "lsm doctor --deep<")),
        ("/t/shop.parts", ("lsm doctor shop.parts<", "lsm doctor shop.parts --deep<")),
        ("/t/shop.orders@fix", ("lsm doctor shop.orders<",)),
    ):
        text = browse(target).text
        assert "nothing found" in text
        assert "healthy" not in text
        assert [each for each in ("at a glance", *commands) if each not in text] == []
    assert 'href="/t/shop.parts#health"' in browse("/").text
    assert 'id="health"' in browse("/t/shop.parts").text


def test_a_table_that_cannot_be_read_hides_no_other(
    browse: Browser, lake: Path, monkeypatch
) -> None:
    schema = lake / "shop.db" / "clicks" / "schema" / "schema-0"
    text = schema.read_text()
    schema.write_text(text[:40])
    try:
        monkeypatch.setattr("lsm_engine.ui.routes.FRESH_SECONDS", 0)
        page = browse("/").text
        assert "unreadable" in page
        assert "shop.parts" in page
        assert browse("/t/shop.clicks").status == 500
    finally:
        schema.write_text(text)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_only_reading_is_answered(browse: Browser, method: str) -> None:
    got = browse(
        "/t/shop.orders", method, body=b"GET /t/shop.parts HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    assert got.status == 405
    assert got.headers["Allow"] == "GET, HEAD"
    assert got.headers["Connection"] == "close"
    assert "shop.parts" not in got.text


def test_head_has_the_headers_of_get_and_no_body(browse: Browser) -> None:
    whole, head = browse("/t/shop.orders"), browse("/t/shop.orders", "HEAD")
    assert (head.status, head.text) == (200, "")
    assert head.headers["Content-Length"] == whole.headers["Content-Length"] != "0"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9", "[::1]:8577"])
def test_this_machine_is_answered_by_any_port(browse: Browser, host: str) -> None:
    assert browse("/", host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", "",
        "localhost@evil.example", "127.0.0.2", "localhost:x", "localhost:80:80", "[::2]",
    ],
)  # fmt: skip
def test_a_name_that_was_made_to_resolve_here_is_refused(browse: Browser, host: str) -> None:
    got = browse("/t/shop.orders", host=host)
    assert got.status == 421
    assert "shop.orders" not in got.text


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"421"),
        (b"GET / HTTP/1.0\r\n\r\n", b"421"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", b"421"),
        (
            b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            b"404",
        ),
        (b"<script>alert(1)</script>\r\n\r\n", b"Bad Request"),
        (b"GET / <script>alert(1)</script>\r\nHost: localhost\r\n\r\n", b"Bad Request"),
    ],
)
def test_a_request_that_is_not_plain_is_refused(
    browse: Browser, request_: bytes, status: bytes
) -> None:
    answer = browse.raw(request_)
    assert status in answer.split(b"\r\n")[0]
    assert b"shop.orders" not in answer
    assert b"<script>" not in answer


def test_the_lineage_is_the_page_that_lsm_lineage_writes(browse: Browser, lake: Path) -> None:
    got = browse("/lineage?table=shop.orders")
    assert got.status == 200
    facts = json.loads(got.text.partition('type="application/json">')[2].partition("</script>")[0])
    assert [table["name"] for table in facts["tables"]] == ["shop.orders"]
    assert facts["served"] is True
    assert HOSTILE not in got.text
    assert got.headers["Content-Security-Policy"].count("'sha256-") == 2
    assert "unsafe-inline" not in got.headers["Content-Security-Policy"]
    with lsm.open_catalog(f"sqlite:///{lake}/catalog.db", warehouse=str(lake)) as catalog:
        alone = lsm.lineage_page(catalog.lineage, [lsm.TableName.parse("shop.orders")])
    line = json.dumps(facts["tables"][0]["line"], separators=(",", ":"))
    assert [each["commits"] for each in json.loads(line)] == [1] * 6
    assert got.text == alone.replace('"served":false', '"served":true').replace(
        '[],"snap', f'{line},"snap'
    )
    assert '"dagster":false' in got.text


def test_a_branch_has_a_lineage_of_its_own(browse: Browser) -> None:
    """Its links led to main's snapshot of the same id, and its own page could not be opened."""
    with_link = browse("/t/shop.orders@fix/snapshot/2").text
    address = "/lineage?table=shop.orders%40fix&amp;at=2#shop.orders%40fix/2"
    assert f'href="{address}"' in with_link
    got = browse("/lineage?table=shop.orders%40fix&at=2")
    assert got.status == 200
    facts = json.loads(got.text.partition('type="application/json">')[2].partition("</script>")[0])
    assert [table["name"] for table in facts["tables"]] == ["shop.orders@fix"]
    nothing = browse("/lineage?table=shop.empty").text
    assert "has recorded no commit yet" in nothing
    assert "shop.empty" in nothing


def test_runs_and_assets_lead_to_dagster_where_its_address_is_given(lake: Path) -> None:
    with (
        lsm.open_catalog(f"sqlite:///{lake}/catalog.db", warehouse=str(lake)) as catalog,
        PageServer(Site(catalog, str, "http://127.0.0.1:3000"), 0) as server,
    ):
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        browse = Browser(server.server_address[1])
        got = browse("/dagster/runs/ab%2F..%2Fc")
        assert (got.status, got.headers["Location"]) == (
            303,
            "http://127.0.0.1:3000/runs/ab%2F..%2Fc",
        )
        got = browse("/dagster/assets/shop/orders")
        assert got.headers["Location"] == "http://127.0.0.1:3000/assets/shop/orders"
        for elsewhere in ("/dagster/graphql", "/dagster/runs", "/dagster"):
            assert browse(elsewhere).status == 404
        server.shutdown()
        thread.join()


def test_without_dagster_nothing_leads_there(browse: Browser) -> None:
    assert browse("/dagster/runs/x").status == 404


@pytest.mark.parametrize(
    "given", ["ftp://x", "javascript:alert(1)", "http://", "x", "http://a?b", *UNPARSABLE]
)
def test_an_address_of_dagster_that_is_none_is_refused(given: str) -> None:
    told = CliRunner().invoke(ui, ["--dagster", given])
    assert told.exit_code == 2
    assert "http://127.0.0.1:3000" in told.output


def test_snapshots_come_in_pages_and_only_those_are_read(tmp_path, monkeypatch) -> None:
    catalog = lsm.open_catalog(tmp_path)
    table = catalog.create_table("a.b", COLUMNS, primary_key=["id"], options={"write-only": "true"})
    for at in range(7):
        table.upsert([{"id": at, "name": "x"}])
    monkeypatch.setattr("lsm_engine.ui.routes.SNAPSHOTS_PER_PAGE", 3)
    read: list[int] = []
    load = lsm.Table.snapshot
    monkeypatch.setattr(lsm.Table, "snapshot", lambda self, at: read.append(at) or load(self, at))
    site = Site(catalog, str)
    first, second, last = (
        site.reply(f"/t/a.b/snapshots{query}").body.decode() for query in ("", "?from=4", "?from=1")
    )
    assert read == [7, 6, 5, 4, 3, 2, 1]
    assert "5 to 7 of 7 snapshots" in first
    assert 'rel="prev"' not in first
    assert 'href="/t/a.b/snapshots?from=4" rel="next"' in first
    assert 'href="/t/a.b/snapshots?from=7" rel="prev"' in second
    assert 'rel="next"' not in last


def test_tables_come_in_pages_and_can_be_searched(tmp_path, monkeypatch) -> None:
    catalog = lsm.open_catalog(tmp_path)
    for at in range(5):
        catalog.create_table(f"a.t{at}", COLUMNS, primary_key=["id"])
    monkeypatch.setattr("lsm_engine.ui.routes.TABLES_PER_PAGE", 2)
    site = Site(catalog, str)
    pages = [site.reply(f"/?page={at}").body.decode() for at in range(4)]
    shown = [re.findall(r'href="/t/(a\.t\d)"', page) for page in pages]
    assert shown == [["a.t0", "a.t1"], ["a.t2", "a.t3"], ["a.t4"], ["a.t4"]]
    found = site.reply("/?q=T3").body.decode()
    assert re.findall(r'href="/t/(a\.t\d)"', found) == ["a.t3"]


def test_a_page_does_not_wait_for_tables_that_take_long(monkeypatch) -> None:
    monkeypatch.setattr("lsm_engine.ui.routes.WAIT_SECONDS", 0.05)
    go_on = threading.Event()

    def examined(name: str) -> TableState:
        assert go_on.wait(60)
        if name == "a.bad":
            raise RuntimeError(HOSTILE)
        return TableState(name=name, debt_bytes=5)

    board = HealthBoard(examined)
    try:
        assert [state.pending for state in board.states(["a.b", "a.bad"])] == [True, True]
        go_on.set()
        monkeypatch.setattr("lsm_engine.ui.routes.WAIT_SECONDS", 60)
        good, bad = board.states(["a.b", "a.bad"])
        assert (good.pending, good.debt_bytes) == (False, 5)
        assert HOSTILE in (bad.problem or "")
        go_on.clear()
        monkeypatch.setattr("lsm_engine.ui.routes.WAIT_SECONDS", 0.05)
        monkeypatch.setattr("lsm_engine.ui.routes.FRESH_SECONDS", 0)
        assert board.states(["a.b"]) == [good]
    finally:
        go_on.set()
        board.close()


def test_markup_is_escaped_once_and_addresses_stay_here() -> None:
    assert element("p", "<b>", Html("<i></i>"), None, 0, title='"x"') == (
        '<p title="&quot;x&quot;">&lt;b&gt;<i></i>0</p>'
    )
    assert element("a", "\u202egnp.exe", href=address("t", "a/../b?#<>")) == (
        '<a href="/t/a%2F..%2Fb%3F%23%3C%3E">\\u202egnp.exe</a>'
    )
    for url in (
        "javascript:alert(1)",
        "//evil.example",
        "/\\evil.example",
        "https://evil.example",
        "",
    ):
        with pytest.raises(ValueError, match="one slash"):
            element("a", "x", href=url)


def started(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lsm_engine.cli.main", *arguments]
    environment = {**os.environ, "BROWSER": "false"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def test_the_command_prints_its_address_and_ends_at_ctrl_c(lake: Path) -> None:
    process = started("--warehouse", str(lake), "ui", "--port", "0", "--no-browser")
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    port = int(re.fullmatch(r"http://127\.0\.0\.1:(\d+)/", url)[1])
    assert "shop.orders" in Browser(port)("/").text
    taken = started("--warehouse", str(lake), "ui", "--port", str(port), "--no-browser")
    assert "--port 0" in taken.communicate(timeout=60)[1]
    assert taken.returncode == 5
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0


def test_a_warehouse_without_a_catalog_is_shown(tmp_path: Path) -> None:
    with lsm.open_catalog(tmp_path) as catalog:
        catalog.create_table("a.b", COLUMNS, primary_key=["id"]).upsert([{"id": 1, "name": "x"}])
    for file in tmp_path.glob("catalog.db*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    process = started("--warehouse", str(tmp_path), "ui", "--port", "0", "--no-browser", "--json")
    assert process.stdout is not None
    port = int(json.loads(process.stdout.readline())["url"].rstrip("/").rpartition(":")[2])
    browse = Browser(port)
    assert "a.b" in browse("/").text
    assert "1 sorted run" in browse("/t/a.b/tree").text
    assert '"name":"a.b"' in browse("/lineage").text
    with lsm.open_catalog("sqlite://", warehouse=tmp_path) as other:
        other.create_table("a.later", COLUMNS, primary_key=["id"])
    assert "a.later" in browse("/").text
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0
    assert not list(tmp_path.glob("catalog.db*"))


def test_without_catalog_and_tables_it_ends(shell) -> None:
    shell("ui", "--no-browser", code=3)


def test_counts_among_facts_have_their_thousands_apart_and_ids_do_not() -> None:
    shown = fact_list({"total_record_count": 12_126, "commit_identifier": 9_223_372, "tags": None})
    assert "<dd>12,126</dd>" in shown
    assert "<dd>9223372</dd>" in shown
    assert "tags" not in shown
