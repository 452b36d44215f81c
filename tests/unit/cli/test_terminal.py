"""`lsm` in a real terminal of 80 columns (tmux): its pager breaks no line, and no name is cut in two."""

import os
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.promised import missing

pytestmark = pytest.mark.slow
LINES = 24


class Terminal:
    """A window of 80 columns with a shell in it."""

    def __init__(self, tmux: str, shop) -> None:
        self._tmux = [tmux, "-L", f"lsm-{uuid.uuid4().hex}", "-f", "/dev/null"]
        self._program = [sys.executable, "-m", "lsm_engine.cli.main", "--warehouse", shop.warehouse]
        environment = {
            name: text for name, text in os.environ.items()
            if name not in ("LESS", "PAGER", "NO_COLOR", "COLUMNS", "LINES")
        }  # fmt: skip
        environment["PYTHONPATH"] = str(Path(__file__).parents[3])
        subprocess.run(
            [*self._tmux, "new-session", "-d", "-x", "80", "-y", str(LINES), "env PS1='$ ' sh"],
            env=environment, check=True, timeout=30,
        )  # fmt: skip

    def run(self, *words: str) -> None:
        """Type a command line."""
        self.press("clear", "Enter")
        self.press(shlex.join(map(str, (*self._program, *words))), "Enter")

    def press(self, *keys: str) -> None:
        """Press keys; text is typed."""
        subprocess.run([*self._tmux, "send-keys", *keys], check=True, timeout=30)

    def shows(self, holds: Callable[[list[str]], bool]) -> list[str]:
        """The lines of the screen, once something holds of them."""
        until = time.monotonic() + 90
        while True:
            done = subprocess.run(
                [*self._tmux, "capture-pane", "-p"],
                capture_output=True, text=True, check=True, timeout=30,
            )  # fmt: skip
            lines = done.stdout.rstrip("\n").splitlines()
            if holds(lines):
                return lines
            assert time.monotonic() < until, done.stdout
            time.sleep(0.2)

    def close(self) -> None:
        """End the shell."""
        subprocess.run([*self._tmux, "kill-server"], check=False, timeout=30)


@pytest.fixture
def terminal(shop) -> Iterator[Terminal]:
    tmux = shutil.which("tmux") or missing("tmux", "needs tmux")
    made = Terminal(tmux, shop)
    yield made
    made.close()


def test_what_is_longer_than_the_window_goes_through_the_pager_unbroken(shop, terminal) -> None:
    with shop.catalog() as catalog:
        table = catalog["shop.orders"]
        for name in ("a", "b", "c", "d", "e"):
            table.create_tag(name * 90)
    terminal.run("tag", "list", "shop.orders")
    first = terminal.shows(lambda lines: bool(lines) and lines[-1].startswith((":", "(END)")))
    assert len(first) <= LINES
    assert max(map(len, first)) <= 80
    upright = [line for line in first if line.startswith("tag ")]
    assert upright, first  # records, as rows are wider than the window
    long = [line for line in first if "aaaa" in line]
    assert len(long) == 1, first  # cut at the edge, where the arrow keys lead on, never wrapped
    terminal.press("q")
    terminal.shows(lambda lines: lines[-1:] == ["$"])


def test_a_short_answer_stays_on_the_screen_and_names_are_whole(shop, terminal) -> None:
    terminal.run("show", "files", "shop.orders", "--where", "level = 0", "--snapshot", "1")
    (name,) = (
        row["file_path"] for row in shop.json("show", "files", "shop.orders", "--snapshot", "1")
    )
    lines = terminal.shows(
        lambda lines: lines[-1:] == ["$"] and any("min key" in one for one in lines)
    )
    assert name in "".join(lines), lines  # where the screen ends, the terminal itself goes on below
