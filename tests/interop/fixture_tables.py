"""The fixture tables that real clients wrote, and which client reads which."""

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
# The columns of READERS.md, in its order.
READERS = ("java", "rust", "pypaimon")


_CHAR = re.compile(r"CHAR\((\d+)\)")


def _padded(content: Any, lengths: dict[str, int]) -> Any:
    """Return rows, wherever they are in some content, with texts of such columns padded."""
    if isinstance(content, list):
        return [_padded(part, lengths) for part in content]
    if not isinstance(content, dict):
        return content
    return {
        name: part.ljust(lengths[name])
        if name in lengths and isinstance(part, str)
        else _padded(part, lengths)
        for name, part in content.items()
    }


@dataclass(frozen=True, kw_only=True)
class FixtureTable:
    """A table some client wrote: its folder, and the content that was read back then."""

    writer: str
    name: str

    @property
    def table(self) -> Path:
        """The table's directory."""
        return FIXTURES / self.writer / self.name / "table"

    @property
    def expected(self) -> dict[str, Any]:
        """Content at the head, per snapshot and per tag."""
        return json.loads((FIXTURES / self.writer / self.name / "expected.json").read_text())

    @property
    def expected_here(self) -> dict[str, Any]:
        """The same content as this engine reads it: CHAR(n) with blanks up to n."""
        content = self.expected
        kinds = {name: str(kind) for name, kind in content.get("fields", [])}
        chars = {name: _CHAR.match(kind) for name, kind in kinds.items()}
        lengths = {name: int(char[1]) for name, char in chars.items() if char is not None}
        return _padded(content, lengths) if lengths else content

    @property
    def meta(self) -> dict[str, Any]:
        """What its writer did."""
        return json.loads((FIXTURES / self.writer / self.name / "meta.json").read_text())


@cache
def readers() -> dict[FixtureTable, frozenset[str]]:
    """Per fixture of READERS.md the clients that read all of it, its head, snapshots and tags."""
    found: dict[FixtureTable, frozenset[str]] = {}
    writer = ""
    for line in (FIXTURES / "READERS.md").read_text().splitlines():
        if line.startswith("## "):
            writer = line.removeprefix("## ").strip()
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if writer and re.fullmatch(r"[a-z_]+", cells[0]) and cells[0] != "fixture":
            verdicts = zip(READERS, cells[1:], strict=False)
            able = frozenset(reader for reader, verdict in verdicts if verdict == "ok")
            found[FixtureTable(writer=writer, name=cells[0])] = able
    return found


def on_disk() -> list[FixtureTable]:
    """The fixtures that are here."""
    folders = sorted(file.parent for file in FIXTURES.glob("*/*/expected.json"))
    return [FixtureTable(writer=folder.parent.name, name=folder.name) for folder in folders]
