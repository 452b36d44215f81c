"""What `lsm` prints, as text on file: the tour and the page on history of the site, and all that can be looked at.

In a terminal of 80 columns and of 200, in a pipe, and with --json. `--rewrite` writes the files anew;
review the difference. Times, ids and sizes are blanked out, at their width.
"""

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from lsm_engine.cli.main import lsm
from lsm_engine.storage.clock import SystemClock, SystemIds
from tests.docs.blocks import DOCS, blocks

GOLDEN = Path(__file__).parent / "printed"
TERMINAL = {"FORCE_COLOR": "1", "NO_COLOR": "1", "PAGER": "cat"}
FORMS = {
    "80": {**TERMINAL, "COLUMNS": "80"},
    "200": {**TERMINAL, "COLUMNS": "200"},
    "pipe": {"FORCE_COLOR": None, "NO_COLOR": None, "COLUMNS": "80"},
    "json": {"FORCE_COLOR": None, "NO_COLOR": None, "COLUMNS": "80"},
}
PATH_LENGTH = 150
FIRST_MILLIS = 1_700_000_000_000
BESIDES = """
lsm databases
lsm tables
lsm scan shop.orders --limit 1
lsm count shop.orders
lsm lookup shop.orders --key order_id=2
lsm locate shop.orders monday.csv
lsm doctor --stale-after "1 s"
lsm doctor --shallow
lsm show schema shop.orders
lsm show snapshot shop.orders 1
lsm show options shop.orders
lsm show files shop.orders
lsm show manifests shop.orders
lsm show manifest-lists shop.orders
lsm show debt shop.orders
lsm show amplification shop.orders
lsm show buckets shop.orders
lsm show partitions shop.orders
lsm show schemas shop.orders
lsm show tags shop.orders
lsm show branches shop.orders
lsm show commits
lsm show sys.tables
lsm tag list shop.orders
lsm branch list shop.orders
lsm consumer reset shop.orders etl --next 2
lsm consumer list shop.orders
lsm orphans shop.orders --dry-run
lsm expire-partitions shop.orders --older-than "1 d" --dry-run
lsm repair shop.orders missing-files
lsm trash list shop.orders
lsm alter shop.orders --add "note STRING"
lsm rename shop.orders shop.sales
lsm catalog rebuild
lsm scan shop.nothing
lsm show nothing shop.sales
lsm delete shop.sales --where "price > 50"
lsm drop shop.sales --yes
"""
BLANKED = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "u"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?"), "t"),
    (re.compile(r"[\d.,]+ (?:B|KB|MB)\b"), "#"),
    (re.compile(r'(?<=size_bytes": )\d+|(?<=_size": )\d+|(?<=in_bytes": )\d+|(?<=millis": )\d+'), "#"),
    (re.compile(r"\b170\d{10}\b"), "m"),
    (re.compile(r"crc32:[0-9a-f]+"), "c"),
    (re.compile(r"in \d+ seconds|[\d.e+]+ runs"), "#"),
)  # fmt: skip


def commands() -> list[list[str]]:
    """The words of every command line of the pages, then of those besides."""
    text = "\n".join(
        block for page in ("tour", "history") for tongue, block in blocks(DOCS / f"{page}.md")
        if tongue == "bash"
    )  # fmt: skip
    lines = (text.replace("\\\n", " ") + BESIDES).splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("lsm ")]


RATES = (
    (re.compile(r"[\d.,]+ (?:B|KB|MB) an hour"), "####### an hour"),
    (re.compile(r'(?<=_per_hour": )[\d.]+'), "#"),
    (re.compile("─{90,}"), "─" * 90),
    (re.compile(r"(?<=duration millis) +\d+"), "     #"),
)
"""By a clock that ticks at each call, of which threads beside make now one more."""


def blanked(text: str) -> str:
    for pattern, fixed in RATES:
        text = pattern.sub(fixed, text)
    for pattern, letter in BLANKED:
        text = pattern.sub(lambda found, by=letter: by * len(found[0]), text)
    return text


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory whose name is as long wherever the tests run: columns are as wide as what they hold."""
    made = tmp_path / ("d" * max(1, PATH_LENGTH - len(f"{tmp_path}/")))
    made.mkdir()
    return made


@pytest.fixture
def fixed(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """A directory with the tour's files, a clock that ticks when it is asked, and ids in order."""
    now, given = iter(range(FIRST_MILLIS, FIRST_MILLIS + 10**9, 7)), iter(range(1, 10**9))
    monkeypatch.setattr(SystemClock, "now_millis", lambda _: next(now))
    monkeypatch.setattr(
        SystemIds, "new_id", lambda _: f"{next(given):08x}-0000-4000-8000-{next(given):012x}"
    )
    monkeypatch.setenv("LOGNAME", "operator")
    monkeypatch.chdir(directory)
    for tongue, block in blocks(DOCS / "tour.md"):
        if tongue == "bash":
            for name, text in re.findall(r"cat > (\S+) <<'END'\n(.*?)^END$", block, re.M | re.S):
                Path(name).write_text(text)


def printed(form: str, directory: Path) -> list[tuple[str, str, str]]:
    """Each command line, and what it wrote to stdout and to stderr."""
    found = []
    environment = {
        "LSM_WAREHOUSE": "lake", "LSM_CATALOG": None, "LSM_CATALOG_URL": None, **FORMS[form],
    }  # fmt: skip
    for words in commands():
        asked = [*words, "--json"] if form == "json" else words
        result = CliRunner().invoke(lsm, asked, env=environment, input="")
        assert result.exit_code not in (70, 12), (words, result.output)
        err = "" if "\x1b" in result.stderr else result.stderr  # a bar that moves
        texts = [text.replace(str(directory), "/home/operator") for text in (result.stdout, err)]
        line = f"$ {shlex.join(['lsm', *asked])} -> {result.exit_code}"
        found.append((line, *texts))
    return found


ONE_OF_MANY = re.compile(
    r"(?<![\d.,:=-])1 (?:\w+ )?(?:row|key|file|snapshot|tag|table|bucket|run|record)s\b.*"
)
"""A single thing, counted as if it were several."""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.usefixtures("fixed")
def test_it_is_printed_as_on_file(form: str, rewrite: bool, directory: Path) -> None:
    found = printed(form, directory)
    text = blanked("\n".join(f"{line}\n{out}{err}" for line, out, err in found))
    file = GOLDEN / f"{form}.txt"
    if rewrite:
        GOLDEN.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text(), "run pytest with --rewrite and review the difference"
    for line, out, _ in found:
        assert "\x1b" not in out, line
        assert not ONE_OF_MANY.findall(out), line
        if form == "json":
            assert all(json.loads(one) is not None for one in out.splitlines()), line
        elif form in ("80", "200"):
            wide = [one for one in out.splitlines() if len(one) > int(form)]
            # No value is broken: what is too long is one word, or a record's value behind its name.
            assert all(re.search(r"\S{25}|^\S+( \S+)*  +\S", one) for one in wide), (line, wide)
