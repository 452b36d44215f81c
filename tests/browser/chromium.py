"""Pages in headless Chromium: open one, act on it from inside, and read what it has become."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.promised import missing

_RESULT = re.compile(r'<pre id="acted">(.*?)</pre>', re.DOTALL)


def chromium() -> str:
    """Return the browser; without one a test is skipped, but fails where `LSM_PROMISED` names it."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    return found or missing("chromium", "needs Chromium")


def run(*arguments: str, profile: Path) -> str:
    """Run the browser once and return what it prints."""
    done = subprocess.run(
        [
            chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--disable-dev-shm-usage", f"--user-data-dir={profile}", *arguments,
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout


def acted(page: Path, script: str, *, anchor: str = "", budget: int = 5_000) -> Any:
    """Open a copy of a page, run the body of a function in it, and return what that returns.

    `budget`: how long it may take, in milliseconds of the page's own clock.
    """
    ending = (
        "<script>addEventListener('load', async () => {"
        "const out = document.createElement('pre'); out.id = 'acted';"
        "try { out.textContent = JSON.stringify(await (async () => {"
        f"{script}"
        "})()); } catch (error) { out.textContent = JSON.stringify({error: String(error)}); }"
        "document.body.append(out); });</script>"
    )
    copy = page.with_name("acted.html")
    copy.write_text(page.read_text("utf-8") + ending, "utf-8")
    text = run(
        f"--virtual-time-budget={budget}", "--window-size=1400,800", "--dump-dom",
        "--allow-file-access-from-files",
        f"file://{copy}{anchor}", profile=page.parent / "profile",
    )  # fmt: skip
    found = _RESULT.search(text)
    assert found, text[-2000:]
    result = json.loads(html.unescape(found[1]))
    assert not (isinstance(result, dict) and "error" in result), result
    return result
