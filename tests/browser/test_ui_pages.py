"""`lsm ui` in a real browser: nothing runs but its own script, keys work, a phone is wide enough."""

import html
import json
import threading
from collections.abc import Iterator
from urllib.parse import quote

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.ui.command import PageServer
from lsm_engine.ui.routes import Reply, Site
from tests.browser.chromium import _RESULT, run

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HOSTILE = "<img src=x onerror=document.title='run'><script>document.title='run'</script>"
LONG = "a_name_that_is_wider_than_any_telephone_that_there_is"
TURNED = "\u202eevil\u202c العربية"
DARK = "--blink-settings=preferredColorScheme=0"
PROBE = """
addEventListener("load", () => {
  const out = document.createElement("pre"), followed = [];
  out.id = "acted";
  addEventListener("click", event => { followed.push(event.target.getAttribute("href")); event.preventDefault(); });
  const press = key => document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
  press("n"); press("p"); press("/");
  const style = getComputedStyle(document.body);
  // Headless windows are 500 pixels wide at least, which the rules for telephones reach as well.
  document.documentElement.style.width = "390px";
  const whole = [...document.body.querySelectorAll("*")].filter(each => !each.closest(".wide *, .timeline *"));
  const light = text => {
    const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map(one => one / 255)
      .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const below = element => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (!/, 0\\)$/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const shown = [...document.body.querySelectorAll("*:not(svg *):not(script)")].filter(
    each => [...each.childNodes].some(node => node.nodeType === 3 && node.textContent.trim()));
  const contrast = (colour, element) => {
    const lights = [light(colour), light(below(element))];
    return (Math.max(...lights) + 0.05) / (Math.min(...lights) + 0.05);
  };
  const faint = shown.filter(each => contrast(getComputedStyle(each).color, each) < 4.5)
    .map(each => each.tagName + "." + each.className + " " + each.textContent.slice(0, 30));
  for (const box of document.querySelectorAll("input")) {
    if (contrast(getComputedStyle(box, "::placeholder").color, box) < 4.5) faint.push("placeholder of " + box.name);
    if (contrast(getComputedStyle(box).borderTopColor, box.parentElement) < 3) faint.push("border of " + box.name);
  }
  out.textContent = JSON.stringify({
    faint,
    followed, focus: document.activeElement.name, title: document.title,
    turned: /[\\u202a-\\u202e\\u2066-\\u2069]/.test(document.body.textContent),
    scripts: [...document.scripts].map(script => script.getAttribute("src")),
    images: document.images.length, background: style.backgroundColor, font: style.fontSize,
    right: Math.max(...whole.map(each => each.getBoundingClientRect().right)), width: innerWidth,
  });
  document.body.append(out);
});
"""


class Probed(Site):
    """The site, with one more script of its own on each page."""

    def reply(self, target: str) -> Reply:
        if target == "/probe.js":
            return Reply(status=200, body=PROBE.encode(), content_type="text/javascript")
        found = super().reply(target)
        if not found.content_type.startswith("text/html") or target.startswith("/lineage"):
            return found
        body = found.body.replace(b"</body>", b'<script src="/probe.js"></script></body>')
        return Reply(status=found.status, body=body)


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("ui")
    names = ("name", HOSTILE, TURNED, LONG * 3, "👩‍👩‍👧‍👦")
    columns = pa.schema([("id", pa.int64()), *((name, pa.string()) for name in names)])
    with lsm.open_catalog(root) as catalog, pytest.MonkeyPatch.context() as patched:
        patched.setattr("lsm_engine.ui.routes.SNAPSHOTS_PER_PAGE", 2)
        options = {"bucket": "1", "write-only": "true"}
        table = catalog.create_table(
            f"shop.{LONG}", columns, primary_key=["id"], options=options, comment=HOSTILE
        )
        for at in range(5):
            table.upsert([{"id": 1, **dict.fromkeys(names, HOSTILE)}, {"id": at, "name": TURNED}])
        for tag in (HOSTILE.replace("/", ""), LONG * 3, "👩‍👩‍👧‍👦", "100%"):
            table.create_tag(tag, 3)
        with PageServer(Probed(catalog, str), 0) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            yield server.url
            server.shutdown()
            thread.join()


def seen(address: str, profile, *flags: str):
    text = run("--virtual-time-budget=5000", *flags, "--dump-dom", address, profile=profile)
    found = _RESULT.search(text)
    assert found, text[-2000:]
    return json.loads(html.unescape(found[1]))


TABLE = f"t/shop.{LONG}"
PAGES = {
    "tables": "", "search": f"?q={LONG}", "table": TABLE, "snapshots": f"{TABLE}/snapshots?from=4",
    "snapshot": f"{TABLE}/snapshot/3", "tag": f"{TABLE}/tag/{quote(HOSTILE.replace('/', ''))}",
    "tree": f"{TABLE}/tree", "files": f"{TABLE}/tree?bucket=0", "key": f"{TABLE}/key?id=1",
    "nothing": "t/shop.nothing",
}  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_a_phone_shows_a_page_whole_and_runs_nothing_of_the_data(url, tmp_path, page) -> None:
    found = seen(f"{url}{PAGES[page]}", tmp_path, "--window-size=390,800", DARK)
    assert found["width"] == 500
    assert found["right"] <= 390
    assert found["scripts"] == ["/ui.js", "/probe.js"]
    assert (found["images"], "run" in found["title"], found["turned"]) == (0, False, False)
    assert found["background"] == "rgb(17, 21, 28)"
    assert found["focus"] == "q"
    assert found["faint"] == []  # in the dark; in the light below


@pytest.mark.parametrize("page", PAGES)
def test_text_can_be_read_in_light(url, tmp_path, page) -> None:
    """By the contrast that WCAG asks for: of text 4.5 to 1, of what surrounds a field 3."""
    found = seen(f"{url}{PAGES[page]}", tmp_path, "--window-size=1200,800")
    assert found["background"] == "rgb(255, 255, 255)"
    assert found["faint"] == []


def test_keys_turn_the_pages_in_the_light(url, tmp_path) -> None:
    found = seen(f"{url}t/shop.{LONG}/snapshots?from=3", tmp_path, "--window-size=1200,800")
    pages = f"/t/shop.{LONG}/snapshots?from="
    assert found["followed"] == [f"{pages}1", f"{pages}5"]
    assert found["background"] == "rgb(255, 255, 255)"
    assert found["font"] == "15px"


def test_the_lineage_runs_its_own_script_and_leads_back(url, tmp_path) -> None:
    page = f"{url}lineage?table=shop.{LONG}#shop.{LONG}/3"
    text = run("--virtual-time-budget=5000", "--dump-dom", page, profile=tmp_path)
    assert 'data-ready="yes"' in text
    assert f"snapshot 5 of shop.{LONG}" in text
    assert f'href="/t/shop.{LONG}/snapshot/3"' in text
    assert "<img" not in text
