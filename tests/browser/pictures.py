"""Take the pictures of the README and the docs anew, from a lake that the sample has made.

    lsm-sample --days 14 --warehouse /tmp/lake
    python -m tests.browser.pictures /tmp/lake

starts `lsm ui` and Dagster's webserver on it, opens their pages in Chromium, and writes the PNGs in place.
"""

import argparse
import base64
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from websockets.sync.client import ClientConnection, connect

from tests.browser.chromium import chromium

ROOT = Path(__file__).parents[2]
DAGSTER, ENGINE = ROOT / "lsm_assets/docs/pictures", ROOT / "lsm_engine/docs/pictures"
GRAPH = """(() => {
  const boxes = [...document.querySelectorAll('foreignObject')].map(each => each.getBoundingClientRect());
  const edge = (way, side) => Math[way](...boxes.map(box => box[side]));
  return [edge('min', 'left') - 20, edge('min', 'top') - 20, edge('max', 'right') + 20, edge('max', 'bottom') + 20];
})()"""
"""Where a graph of Dagster lies on its page."""
EVALUATION = (
    "[...document.querySelectorAll('button')].find(each => /:\\d\\d:\\d\\d/.test(each.innerText))"
)
"""The newest evaluation of a condition; undefined before there is one."""
DIALOG = """(() => {
  const box = document.querySelector('.dagster-dialog').getBoundingClientRect();
  return [box.left, box.top, box.right, Math.min(box.bottom, box.top + 300)];
})()"""
DAEMON = [sys.executable, "-m", "dagster._daemon", "run"]


class Page:
    """One page of a headless Chromium, by its DevTools protocol."""

    def __init__(self, connection: ClientConnection) -> None:
        self._socket = connection
        self._numbers = itertools.count(1)

    def tell(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (answer := json.loads(self._socket.recv(timeout=60))).get("id") != number:
            pass
        assert "result" in answer, answer
        return answer["result"]

    def open(self, url: str, width: int, height: int, *, until: str, wait: float) -> None:
        """Show a page once the script `until` is true, and `wait` seconds longer."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.tell("Emulation.setDeviceMetricsOverride", **size)
        self.tell("Page.navigate", url=url)
        ends = time.monotonic() + 60
        while not self.value(until):
            assert time.monotonic() < ends, f"{url} never came"
            time.sleep(0.2)
        time.sleep(wait)

    def value(self, script: str) -> Any:
        answer = self.tell("Runtime.evaluate", expression=script, returnByValue=True)
        return answer["result"].get("value")

    def take(
        self, file: Path, left: float, top: float, right: float, bottom: float, scale: float = 1
    ) -> None:
        clip = {"x": left, "y": top, "width": right - left, "height": bottom - top, "scale": scale}
        data = self.tell("Page.captureScreenshot", format="png", clip=clip)["data"]
        file.write_bytes(base64.b64decode(data))
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size:,} bytes")


@contextmanager
def browser() -> Iterator[Page]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
        told = (f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank")
        with running([chromium(), *flags, *told], {}):
            where = Path(profile, "DevToolsActivePort")
            while not (where.exists() and where.read_text().count("\n")):
                time.sleep(0.1)
            with urlopen(f"http://127.0.0.1:{where.read_text().split()[0]}/json") as listed:
                pages = [each for each in json.load(listed) if each["type"] == "page"]
            with connect(pages[0]["webSocketDebuggerUrl"], max_size=None) as connection:
                yield Page(connection)


@contextmanager
def running(command: list[str], environment: dict[str, str], url: str = "") -> Iterator[None]:
    """Run a process, once `url` answers."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env={**os.environ, **environment}, **quiet)
    try:
        while url:
            assert process.poll() is None, command
            try:
                urlopen(url).close()
                break
            except URLError:
                time.sleep(0.3)
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lake", type=Path, help="the warehouse of the sample")
    lake = parser.parse_args().lake.resolve()
    ui, dagster = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    home = lake / "dagster"
    environment = {
        "DAGSTER_HOME": str(home),
        "LSM_WAREHOUSE": str(lake),
        "LSM_CATALOG_URL": f"sqlite:///{lake}/catalog.db",
        "LSM_LINEAGE_URL": f"{ui}/lineage",
    }
    pages = [
        sys.executable,
        "-m",
        "lsm_engine.cli.main",
        "--warehouse",
        str(lake),
        "ui",
        "--no-browser",
    ]
    server = [
        sys.executable,
        "-m",
        "dagster_webserver",
        "-w",
        str(home / "workspace.yaml"),
        "-h",
        "127.0.0.1",
    ]
    with ExitStack() as stack:
        port = ui.rpartition(":")[2]
        stack.enter_context(
            running([*pages, "--port", port, "--dagster", dagster], environment, ui)
        )
        port = dagster.rpartition(":")[2]
        stack.enter_context(running([*server, "-p", port], environment, f"{dagster}/server_info"))
        page = stack.enter_context(browser())
        whole = "document.readyState === 'complete'"
        page.open(f"{ui}/t/flights.flights/snapshots", 1200, 640, until=whole, wait=1)
        page.take(ENGINE / "ui.png", 0, 0, 1200, 640, 0.8)
        ready = "document.documentElement.dataset.ready === 'yes'"
        page.open(f"{ui}/lineage#flights.sightings/3", 1200, 780, until=ready, wait=1)
        page.value("camera.x += 300; camera.y += 200; look()")
        page.take(ENGINE / "lineage.png", 0, 0, 1200, 780, 0.8)
        drawn = "document.querySelectorAll('foreignObject').length > 5"
        page.open(f"{dagster}/asset-groups", 1700, 1000, until=drawn, wait=15)
        page.take(DAGSTER / "tables.png", *page.value(GRAPH), 0.9)
        group = f"{dagster}/locations/lsm_assets/asset-groups/flights__flights"
        page.open(group, 2100, 1100, until=drawn, wait=15)
        page.take(DAGSTER / "flights.png", *page.value(GRAPH), 0.7)
        shown = "document.body.innerText.includes('lsm/space_amplification')"
        page.open(f"{dagster}/assets/flights/flights.compaction", 1400, 1300, until=shown, wait=5)
        page.take(DAGSTER / "compaction.png", 240, 0, 1052, 1222)
        # The daemon evaluates conditions every 30 seconds.
        daemon = [*DAEMON, "-w", str(home / "workspace.yaml")]
        with running(daemon, environment):
            automation = f"{dagster}/assets/flights/flights.compaction?view=automation"
            page.open(automation, 1400, 1300, until=f"!!{EVALUATION}", wait=2)
        page.value(f"{EVALUATION}.click()")
        time.sleep(4)
        page.take(DAGSTER / "automation.png", *page.value(DIALOG))


if __name__ == "__main__":
    main()
