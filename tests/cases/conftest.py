"""Text cases: `tests/cases/<folder>/*.txt` hold a title, input lines, a line of dashes, and what came out.

`pytest --rewrite` writes what comes out now; the difference is then reviewed.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

CASES = Path(__file__).parent
Answer = Callable[[dict[str, str]], str]


class Case:
    """One case: `# title`, lines `name: value`, `----`, expected lines. A name may have several lines."""

    def __init__(self, text: str) -> None:
        head, _, expected = text.partition("\n----")
        title, *lines = head.strip().splitlines()
        self.title = title.removeprefix("# ").strip()
        self.input: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(": ")
            self.input[name] = f"{self.input[name]}\n{value}" if name in self.input else value
        self.head = head.strip()
        self.expected = expected.strip()


def read_cases(path: Path) -> list[Case]:
    """Return the cases of a file; a blank line stands between two."""
    return [Case(block) for block in path.read_text().strip().split("\n\n")]


@pytest.fixture
def check_cases(rewrite: bool) -> Callable[[str, Answer], None]:
    """Check every case of a folder, or write the answers anew."""

    def check(folder: str, answer: Answer) -> None:
        paths = sorted((CASES / folder).glob("*.txt"))
        assert paths, f"no cases in {folder}"
        wrong = []
        for path in paths:
            cases = read_cases(path)
            titles = [case.title for case in cases]
            assert len(set(titles)) == len(titles), f"two cases of one title in {path.name}"
            got = [answer(case.input).strip() for case in cases]
            if rewrite:
                blocks = [
                    f"{case.head}\n----\n{text}" for case, text in zip(cases, got, strict=True)
                ]
                path.write_text("\n\n".join(blocks) + "\n")
                continue
            wrong += [
                f"{path.name}: {case.title}\nexpected:\n{case.expected}\ngot:\n{text}"
                for case, text in zip(cases, got, strict=True)
                if case.expected != text
            ]
        assert not wrong, "\n\n".join(wrong)

    return check
