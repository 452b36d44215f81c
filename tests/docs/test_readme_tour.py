"""README's promises about itself: the tour runs as printed, and its two commands are one line each."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(heading: str) -> list[tuple[str, str]]:
    """The fenced blocks of a section: (language, text)."""
    _, found, rest = README.partition(f"\n## {heading}\n")
    assert found, f"README has no section {heading!r}"
    return FENCE.findall(re.split(r"^## ", rest, maxsplit=1, flags=re.MULTILINE)[0])


def run(command: Sequence[str], directory: Path) -> str:
    """Run a block as a reader would in an activated environment; return what it printed."""
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("LSM_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=directory, env={**inherited, "PATH": path}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command[-1]}\nfailed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_the_tour_runs_as_printed(tmp_path: Path) -> None:
    printed = ""
    counts = {"bash": 0, "python": 0, "text": 0}
    for language, text in blocks("Five-minute tour"):
        counts[language] += 1
        if language == "bash":
            # -x: a failure then shows the command that failed, not only the block.
            printed = run(["bash", "-euxo", "pipefail", "-c", text], tmp_path)
        elif language == "python":
            run([sys.executable, "-c", text], tmp_path)
        else:
            # Rows come in no promised order.
            missing = set(text.splitlines()) - set(printed.splitlines())
            assert not missing, f"README shows what was not printed: {missing}"
    assert all(counts.values()), counts


@pytest.mark.parametrize(
    ("heading", "ends_with"),
    [("Run it", "lsm-sample --days 31"), ("Test it", "-m pytest -n 2 --dist loadgroup -q")],
)
def test_one_command_line_does_it(heading: str, ends_with: str) -> None:
    language, text = blocks(heading)[0]
    assert language == "bash"
    (line,) = text.splitlines()
    assert line.startswith("python3 -m venv .venv && .venv/bin/pip install")
    assert line.endswith(ends_with)


def test_sections_that_others_fill_are_there() -> None:
    for heading in ("The Dagster graph", "What an LSM tree looks like", "Limits"):
        assert f"\n## {heading}\n" in README
