"""The lineage page in a real browser: it can be searched, zoomed and followed."""

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.units import format_bytes
from lsm_engine.catalog.lineage.page import lineage_page
from lsm_engine.catalog.provenance import Input, Run, provenance_properties
from tests.browser.chromium import acted

pytestmark = [pytest.mark.browser, pytest.mark.slow]

COLUMNS = pa.schema([("id", pa.int64()), ("price", pa.int64())])


def told(run, *inputs):
    who = Run(run_id=run, engine="local", kind="upsert", asset_key="shop/orders")
    return provenance_properties(who, inputs)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    root = tmp_path_factory.mktemp("lineage")
    with lsm.open_catalog(f"sqlite:///{root}/c.db", warehouse=str(root)) as catalog:
        orders = catalog.create_table("shop.orders", COLUMNS, primary_key=["id"])
        totals = catalog.create_table("shop.totals", COLUMNS, primary_key=["id"])
        for at in range(3):
            source = Input(
                dataset="<b>orders</b>.csv", version=f"day {at}", columns=(("price", "\u202ecirp"),)
            )
            rows = [{"id": at, "price": 1}, {"id": 0, "price": at}]
            orders.upsert(rows, properties=told(f"load-{at}", source))
        orders.create_tag("monday", 2)
        made = Input(dataset="shop.orders", snapshot_id=2, columns=(("price", "price"),))
        totals.upsert([{"id": 0, "price": 4}], properties=told("sum-it-up", made))
        orders.compact(full=True)
        file = root / "lineage.html"
        file.write_text(lineage_page(catalog.lineage), "utf-8")
        file.with_name("oldest").write_text(orders.system("files", 1)["file_path"][0].as_py())
    return file


TICK = "const tick = () => new Promise(done => setTimeout(done, 30));"


def test_every_snapshot_is_drawn_and_says_what_it_is(page) -> None:
    labels = acted(
        page,
        "return [...document.querySelectorAll('.node')].map(node => node.getAttribute('aria-label'));",
    )
    assert len(labels) == 4 + 1 + 3
    assert "snapshot 4 of shop.orders, COMPACT" in labels
    assert "<b>orders</b>.csv day 0" in labels


def test_a_search_marks_and_lists_and_leads_there(page) -> None:
    found = acted(
        page,
        TICK
        + """
        const box = document.getElementById('search');
        box.value = 'sum-it'; box.dispatchEvent(new Event('input'));
        const hits = [...document.querySelectorAll('.node.hit')].map(node => node.dataset.id);
        box.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}));
        await tick();
        return {hits, hash: location.hash, heading: document.querySelector('#panel h2').textContent};
        """,
    )
    assert found == {
        "hits": ["shop.totals/1"],
        "hash": "#shop.totals/1",
        "heading": "shop.totals snapshot 1",
    }
    tagged = acted(
        page,
        """
        const box = document.getElementById('search');
        box.value = 'monday'; box.dispatchEvent(new Event('input'));
        return [...document.querySelectorAll('.node.hit')].map(node => node.dataset.id);
        """,
    )
    assert tagged == ["shop.orders/2"]


def test_a_wheel_zooms_about_the_pointer_and_a_drag_moves(page) -> None:
    seen = acted(
        page,
        """
        const world = document.getElementById('world'), view = document.getElementById('view');
        const states = [world.getAttribute('transform')];
        view.dispatchEvent(new WheelEvent('wheel', {deltaY: -400, clientX: 300, clientY: 300, cancelable: true}));
        states.push(world.getAttribute('transform'));
        view.dispatchEvent(new PointerEvent('pointerdown', {clientX: 300, clientY: 300}));
        window.dispatchEvent(new PointerEvent('pointermove', {clientX: 260, clientY: 320}));
        window.dispatchEvent(new PointerEvent('pointerup', {}));
        states.push(world.getAttribute('transform'));
        document.getElementById('fit').click();
        states.push(world.getAttribute('transform'));
        return states;
        """,
    )
    assert len(set(seen)) == 4
    assert float(seen[1].partition("scale(")[2].rstrip(")")) > 1
    before, after = (
        text.partition("translate(")[2].partition(")")[0].split(",") for text in seen[1:3]
    )
    assert float(after[0]) - float(before[0]) == pytest.approx(-40)
    assert float(after[1]) - float(before[1]) == pytest.approx(20)


def test_a_snapshot_is_followed_up_and_down_and_from_file_to_file(page) -> None:
    seen = acted(
        page,
        TICK
        + """
        const node = document.querySelector('[data-id="shop.orders/2"]');
        node.dispatchEvent(new MouseEvent('click', {bubbles: true}));
        await tick();
        const related = [...document.querySelectorAll('.node.related')].map(each => each.dataset.id);
        const links = [...document.querySelectorAll('#panel a')].map(each => each.textContent);
        [...document.querySelectorAll('#panel a')].find(each => each.textContent.endsWith('.parquet')).click();
        await tick();
        const file = document.querySelector('#panel h2').textContent;
        [...document.querySelectorAll('#panel a')].filter(each => each.textContent.endsWith('.parquet')).at(-1).click();
        await tick();
        return {related, links, file, then: document.querySelector('#panel').textContent};
        """,
    )
    assert sorted(seen["related"]) == ["<b>orders</b>.csv/day 1", "shop.orders/2", "shop.totals/1"]
    assert "shop.totals snapshot 1" in seen["links"]
    assert seen["file"].startswith("data-")
    assert "made from" in seen["then"]


def test_a_link_opens_the_page_at_a_snapshot_or_a_file(page) -> None:
    script = "return document.querySelector('#panel h2').textContent;"
    assert acted(page, script, anchor="#shop.orders/3") == "shop.orders snapshot 3"
    name = page.with_name("oldest").read_text().rpartition("/")[2]
    assert acted(page, script, anchor=f"#shop.orders/file/{name}") == name
    welcome = acted(page, script, anchor="#nothing/0")
    assert "tables" in welcome


def test_text_from_the_lineage_is_never_markup(page) -> None:
    count = acted(
        page,
        TICK
        + """
        location.hash = '#' + encodeURIComponent('<b>orders</b>.csv') + '/day%200';
        await tick();
        return [document.querySelectorAll('b').length, document.querySelector('#panel h2').textContent];
        """,
    )
    assert count == [0, "<b>orders</b>.csv"]
    shown = acted(
        page, "return document.getElementById('panel').textContent;", anchor="#shop.orders/1"
    )
    assert "price ← <b>orders</b>.csv.\\u202ecirp" in shown


def test_sizes_are_written_as_the_command_line_writes_them(page) -> None:
    sizes = [0, 1023, 1024, 15360, 1_023_488, 1_047_552, 1_340_000, 1_500_000_000, 1500 << 40]
    assert acted(page, f"return {sizes}.map(sized);") == [format_bytes(size) for size in sizes]
