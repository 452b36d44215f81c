"""The served lineage of histories of any length: a part is drawn, all of it can be reached and searched."""

import html
import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from urllib.request import urlopen

import pytest

import lsm_engine as lsm
from lsm_engine.catalog.lineage.page import SNAPSHOTS_MAX, lineage_page
from lsm_engine.catalog.models import SNAPSHOTS
from lsm_engine.catalog.provenance import Input, Run, provenance_properties
from lsm_engine.ui.command import PageServer
from lsm_engine.ui.routes import Site
from tests.browser.chromium import acted, run

pytestmark = [pytest.mark.browser, pytest.mark.slow]

DAGSTER = "http://127.0.0.1:9"
BYTES_MAX = 500_000


def lengthened(catalog_file: Path, count: int) -> None:
    """Repeat the first commit of a recorded history, so that it has `count`; every fifth a compaction."""
    values = {column.name: column.name for column in SNAPSHOTS.columns}
    values["snapshot_id"] = "n"
    values["time_millis"] = "time_millis + n * 60000"
    values["delta_manifest_list"] = "'manifest-list-' || n"
    values["commit_kind"] = "iif(n % 5 = 0, 'COMPACT', 'APPEND')"
    numbers = (
        f"WITH RECURSIVE some(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM some WHERE n < {count})"
    )
    with closing(sqlite3.connect(catalog_file)) as connection, connection:
        connection.execute(
            f"{numbers} INSERT INTO lsm_snapshots ({', '.join(values)}) "
            f"SELECT {', '.join(values.values())} FROM lsm_snapshots, some WHERE snapshot_id = 1"
        )


@contextmanager
def served(root: Path, count: int) -> Iterator[str]:
    who = Run(
        run_id="load", engine="local", kind="upsert", asset_key="shop/orders", dagster_run_id="r-1"
    )
    with lsm.open_catalog(f"sqlite:///{root}/catalog.db", warehouse=str(root)) as catalog:
        orders = catalog.create_table("shop.orders", {"id": int}, primary_key="id")
        orders.upsert([{"id": 1}], properties=provenance_properties(who))
        assert catalog.lineage.tables()
        lengthened(root / "catalog.db", count)
        with PageServer(Site(catalog, str, DAGSTER), 0) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            yield server.url
            server.shutdown()
            thread.join()


def opened(url: str, profile: Path) -> str:
    return html.unescape(
        run(
            "--virtual-time-budget=8000",
            "--window-size=1400,800",
            "--dump-dom",
            url,
            profile=profile,
        )
    )


@pytest.mark.parametrize("count", [10, 300, 10_000, pytest.param(100_000, marks=pytest.mark.sweep)])
def test_a_history_of_any_length_is_shown_in_part_and_reached_in_whole(
    tmp_path: Path, count: int
) -> None:
    with served(tmp_path, count) as url:
        page = urlopen(f"{url}lineage?table=shop.orders").read()
        assert len(page) < BYTES_MAX
        text = opened(f"{url}lineage?table=shop.orders", tmp_path / "profile")
        assert f"snapshot {count} of shop.orders" in text
        assert text.count('class="node') == min(count, SNAPSHOTS_MAX)
        # The line tells of all of it, whatever its length.
        assert "snapshots 1 to " in text
        assert f" to {count}: " in text
        assert text.count('aria-label="snapshots ') <= 121

        # A link to the oldest snapshot opens at it, however far it is from the newest.
        oldest = opened(f"{url}lineage?table=shop.orders#shop.orders/1", tmp_path / "profile")
        assert "<h2>shop.orders snapshot 1</h2>" in oldest
        assert 'href="/dagster/runs/r-1"' in oldest
        assert 'href="/dagster/assets/shop/orders"' in oldest
        assert oldest.count('class="node') <= SNAPSHOTS_MAX


def test_search_reaches_what_is_not_drawn_and_links_lead_to_dagster(tmp_path: Path) -> None:
    with served(tmp_path, 5_000) as url:
        found = urlopen(f"{url}lineage?table=shop.orders&find=17")
        assert found.url.endswith("lineage?table=shop.orders&at=17#shop.orders/17")
        by_run = urlopen(f"{url}lineage?table=shop.orders&find=r-1").url
        assert by_run.endswith("at=5000#shop.orders/5000")
        with pytest.raises(Exception, match="404"):
            urlopen(f"{url}lineage?table=shop.orders&find=r%251")
        facts = json.loads(
            urlopen(f"{url}lineage?table=shop.orders&at=17")
            .read()
            .decode()
            .partition('type="application/json">')[2]
            .partition("</script>")[0]
        )
        (table,) = facts["tables"]
        ids = [each["id"] for each in table["snapshots"]]
        assert ids == list(range(17 + SNAPSHOTS_MAX // 2, 0, -1))
        assert sum(each["commits"] for each in table["line"]) == 5_000
        assert sum(each["compactions"] for each in table["line"]) == 1_000


def test_a_page_that_follows_asks_again_every_five_seconds(tmp_path: Path) -> None:
    with served(tmp_path, 10) as url:
        page = tmp_path / "page.html"
        page.write_bytes(urlopen(f"{url}lineage?table=shop.orders").read())
    seen = acted(
        page,
        """
        const asked = [], box = document.getElementById('follow');
        const seen = [!document.getElementById('live').hidden, box.checked];
        window.setTimeout = (act, millis) => asked.push(millis);
        box.click();
        seen.push(asked.length, asked[0], sessionStorage.getItem('follow'));
        keepUp();  // as the page does when it was loaded anew
        seen.push(asked.length, box.checked);
        box.click();
        seen.push(sessionStorage.getItem('follow'));
        return seen;
        """,
    )
    assert seen == [True, False, 1, 5000, "yes", 2, True, "no"]


def test_names_of_lanes_never_lie_on_each_other(tmp_path: Path) -> None:
    with lsm.open_catalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path)) as catalog:
        for number in range(12):
            table = catalog.create_table(f"shop.t{number}", {"id": int}, primary_key="id")
            table.upsert([{"id": 1}])
        page = tmp_path / "page.html"
        page.write_text(lineage_page(catalog.lineage), "utf-8")
    near, far = acted(
        page,
        """
        const shown = () => [...document.querySelectorAll('.lane-name')].filter(
            name => name.getAttribute('visibility') === 'visible').map(name => name.getBBox());
        const near = shown();
        for (let at = 0; at < 12; at++) document.getElementById('out').click();
        return [near, shown()].map(boxes => boxes.map(box => [box.y, box.y + box.height]));
        """,
    )
    assert 0 < len(far) < len(near) == 12
    for boxes in (near, far):
        for above, below in pairwise(boxes):
            assert above[1] <= below[0] + 1


def test_a_history_that_can_be_read_whole_is_shown_whole_at_first(tmp_path: Path) -> None:
    with served(tmp_path, 20) as url:
        page = tmp_path / "page.html"
        page.write_bytes(urlopen(f"{url}lineage?table=shop.orders").read())
    far, left, right, width = acted(
        page,
        """
        const boxes = [...document.querySelectorAll('.node')].map(node => node.getBoundingClientRect());
        const whole = view.getBoundingClientRect();
        return [svg.classList.contains('far'), Math.min(...boxes.map(box => box.left)) - whole.left,
                Math.max(...boxes.map(box => box.right)) - whole.left, whole.width];
        """,
    )
    assert not far
    assert 0 < left < right < width < 20 * 52  # of which a full-sized picture would show a part


LABELS = """
    const boxes = [...document.querySelectorAll('.lane-name, .node text, .node circle, .node rect')].filter(
        each => getComputedStyle(each).display !== 'none' && each.getAttribute('visibility') !== 'hidden').map(
        each => ({box: each.getBoundingClientRect(), what: each.textContent || each.tagName}));
    const onto = boxes.flatMap((one, at) => boxes.slice(at + 1).filter(({box}) =>
        Math.min(box.right, one.box.right) - Math.max(box.left, one.box.left) > 1 &&
        Math.min(box.bottom, one.box.bottom) - Math.max(box.top, one.box.top) > 1).map(({what}) => `${one.what} on ${what}`));
    const struck = edges.filter(edge => [edge.from, edge.to].some(node => [...node.shape.querySelectorAll('text')].some(label => {
        const box = label.getBoundingClientRect(), to = edge.shape.getScreenCTM();
        return Array.from({length: 200}, (none, at) => edge.shape.getPointAtLength(edge.shape.getTotalLength() * at / 199).matrixTransform(to))
            .some(({x, y}) => x > box.left && x < box.right && y > box.top + 1 && y < box.bottom - 1);
    }))).length;
    return {struck, edges: edges.length, onto, shown: boxes.filter(({what}) => what.startsWith('⚑')).length};
"""


def test_no_label_lies_on_another_or_on_a_snapshot(tmp_path: Path) -> None:
    """Of tags and sources with long names, a commit apart each; no line runs through those at its ends."""
    with lsm.open_catalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path)) as catalog:
        for name in ("shop.orders", "shop.a_table_with_a_name_that_reaches_far_into_the_picture"):
            table = catalog.create_table(name, {"id": int}, primary_key="id")
            for day in range(1, 9):
                source = Input(dataset="s3://bucket/in", version=f"2013-01-{day:02} at 12:00")
                who = Run(run_id="load", engine="local", kind="upsert")
                table.upsert([{"id": day}], properties=provenance_properties(who, [source]))
                table.create_tag(f"the-{day}-of-january-👩‍👩‍👧‍👦", day)
        page = tmp_path / "page.html"
        page.write_text(lineage_page(catalog.lineage), "utf-8")
    states = acted(
        page,
        "const seen = () => {" + LABELS + "}, states = [seen()];"
        "for (const id of ['in', 'fit']) { document.getElementById(id).click(); states.push(seen()); }"
        "return states;",
    )
    assert [seen["onto"] for seen in states] == [[], [], []]
    assert [(seen["struck"], seen["edges"]) for seen in states] == [(0, 16)] * 3
    assert 2 <= states[0]["shown"] < 16
    links = "return [...document.querySelectorAll('#panel li a')].map(link => link.textContent);"
    assert "s3://bucket/in 2013-01-03 at 12:00" in acted(page, links, anchor="#shop.orders/3")


def test_fit_fills_the_height_of_a_long_history_and_its_labels_can_be_read(tmp_path: Path) -> None:
    with served(tmp_path, 250) as url:
        with lsm.open_catalog(
            f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path)
        ) as catalog:
            for number in range(5):
                table = catalog.create_table(f"shop.t{number}", {"id": int}, primary_key="id")
                source = Input(dataset="shop.orders", snapshot_id=240 + number)
                who = Run(run_id="sum", engine="local", kind="upsert")
                table.upsert([{"id": 1}], properties=provenance_properties(who, [source]))
                table.create_tag("first")
        page = tmp_path / "page.html"
        page.write_bytes(urlopen(f"{url}lineage").read())
    seen, zoom, height, lanes, letters, dots = acted(
        page,
        "document.getElementById('fit').click(); const seen = (() => {"
        + LABELS
        + """})();
        const boxes = name => [...document.querySelectorAll(name)].map(each => each.getBoundingClientRect());
        const lanes = boxes('.lane').map(box => box.top);
        return [seen, camera.zoom, view.clientHeight, lanes.at(-1) - lanes[0], Math.min(...boxes('.node text:not(.covered)').map(box => box.height)),
                Math.min(...boxes('.node circle').map(box => box.width))];
        """,
    )
    assert zoom < 0.2
    assert (seen["onto"], seen["struck"]) == ([], 0)
    assert seen["edges"] == 5
    assert seen["shown"] == 5, "each tag"
    assert lanes > 0.8 * height
    assert letters > 10
    assert dots > 2


def test_arrows_walk_through_the_picture_and_enter_opens(tmp_path: Path) -> None:
    with served(tmp_path, 60) as url:
        page = tmp_path / "page.html"
        page.write_bytes(urlopen(f"{url}lineage?table=shop.orders").read())
    seen = acted(
        page,
        """
        const inOrder = document.querySelectorAll('.node[tabindex="0"]');
        inOrder[0].focus();
        const press = key => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
        const seen = [inOrder.length, document.activeElement.dataset.id];
        for (let at = 0; at < 40; at++) press('ArrowLeft');
        const box = document.activeElement.getBoundingClientRect(), whole = view.getBoundingClientRect();
        seen.push(document.activeElement.dataset.id, box.left > whole.left && box.right < whole.right);
        press('ArrowRight'); press('ArrowDown'); press('Enter');
        await new Promise(done => setTimeout(done, 30));
        return [...seen, document.querySelector('#panel h2').textContent];
        """,
    )
    assert seen == [1, "shop.orders/60", "shop.orders/20", True, "shop.orders snapshot 21"]


def test_what_another_table_gave_leads_to_its_history(tmp_path: Path) -> None:
    who = Run(run_id="sum", engine="local", kind="upsert")
    with (
        served(tmp_path, 10) as url,
        lsm.open_catalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path)) as catalog,
    ):
        totals = catalog.create_table("shop.totals", {"id": int}, primary_key="id")
        of = Input(dataset="shop.orders", snapshot_id=7)
        totals.upsert([{"id": 1}], properties=provenance_properties(who, [of]))
        source = opened(f"{url}lineage?table=shop.totals#shop.orders/7", tmp_path / "profile")
        there = 'href="/lineage?table=shop.orders&at=7#shop.orders/7"'
        assert (
            "outside of the catalog" not in source.partition("<aside")[2].partition("</aside>")[0]
        )
        assert there in source
        alone = opened(f"{url}lineage?table=shop.orders#shop.orders/7", tmp_path / "profile")
        assert 'href="/lineage#shop.orders/7"' in alone
        among = opened(f"{url}lineage#shop.orders/7", tmp_path / "profile")
        assert there in among
        assert 'href="#shop.totals/1"' in among
