"""Blocks of pages, and how a reader runs them."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.docs.forked_commands import forked_commands

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "lsm_engine" / "docs"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, heading: str | None = None) -> list[tuple[str, str]]:
    """The fenced blocks of a page, or of one of its sections: (language, text)."""
    text = page.read_text()
    if heading is not None:
        _, found, rest = text.partition(f"\n## {heading}\n")
        assert found, f"{page.name} has no section {heading!r}"
        text = re.split(r"^## ", rest, maxsplit=1, flags=re.MULTILINE)[0]
    return FENCE.findall(text)


def run(command: Sequence[str], directory: Path, packages: Sequence[str] = ()) -> str:
    """Run a block as a reader would in an activated environment; return what it printed.

    `lsm`, and Python as `block`, run in forks that have loaded the engine and `packages`.
    """
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("LSM_")}
    path = os.pathsep.join(
        [forked_commands(*packages), str(Path(sys.executable).parent), os.environ["PATH"]]
    )
    done = subprocess.run(
        command, cwd=directory, env={**inherited, "PATH": path}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command[-1]}\nfailed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_page(page: Path, directory: Path) -> dict[str, int]:
    """Run the blocks of a page in order, compare what it shows, and count blocks by language."""
    printed = ""
    counts = {"bash": 0, "python": 0, "text": 0}
    for language, text in blocks(page):
        counts[language] += 1
        if language == "bash":
            # -x: a failure then shows the command that failed, not only the block.
            printed = run(["bash", "-euxo", "pipefail", "-c", text], directory)
        elif language == "python":
            run(["block", text], directory)
        else:
            # Rows come in no promised order.
            missing = set(text.splitlines()) - set(printed.splitlines())
            assert not missing, f"{page.name} shows what was not printed: {missing}"
    return counts
