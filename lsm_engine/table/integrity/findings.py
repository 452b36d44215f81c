"""Findings of a verification: problems, and the files and retained references that they affect."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from lsm_engine.base.errors import LsmError
from lsm_engine.base.record import record
from lsm_engine.table.integrity.stakes import FileStake

MAIN = "main"
T = TypeVar("T")
K = TypeVar("K", int, str)


@record
class Finding:
    """One thing that is wrong. `path`: the file it is about; `stake`: what a data file holds."""

    text: str
    path: str | None = None
    stake: FileStake | None = None

    def __str__(self) -> str:
        return self.text if self.stake is None else f"{self.text} ({self.stake})"


def finding_of(error: LsmError, stake: FileStake | None = None) -> Finding:
    """Return an error over stored bytes as a finding about the file that it names."""
    values = (error.facts.get("file"), error.facts.get("path"))
    names = [value for value in values if isinstance(value, str)]
    path = names[0] if names else None if stake is None else stake.path
    return Finding(text=str(error), path=path, stake=stake)


@record
class Root:
    """What leads to files: `kind` is "snapshot", "tag" or "changelog"; `name` its id or name."""

    kind: str
    name: int | str
    branch: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


@record
class DamagedFile:
    """A file that something is wrong with, and all that cannot be read, or not be trusted, without it.

    `stake`: what a data file held, as its manifest entry knows it; None for other files. `snapshots`
    and `changelogs` are ids, of any of the `branches`. `sources`: what could give back what it held;
    `is_rebuildable`: byte for byte, so that every root has it again, and not only older rows of its keys.
    """

    path: str
    problems: tuple[str, ...]
    stake: FileStake | None = None
    snapshots: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    changelogs: tuple[int, ...] = ()
    branches: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    is_rebuildable: bool = False

    def __str__(self) -> str:
        roots = [
            f"{kind} {', '.join(str(name) for name in names)}"
            for kind, names in (
                ("snapshots", _ranges(self.snapshots)),
                ("tags", self.tags),
                ("changelogs", _ranges(self.changelogs)),
                ("branches", tuple(name for name in self.branches if name != MAIN)),
            )
            if names
        ]
        held_rows = f" held {self.stake}" if self.stake is not None else ""
        parts = [f"{self.path}{held_rows}", *roots, *self.sources]
        return "; ".join(parts)


def _ranges(numbers: Iterable[int]) -> tuple[str, ...]:
    """Return ids as text, each run of them as one: 1 to 5, 7."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] + 1 == number:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return tuple(" to ".join(str(end) for end in run) for run in runs)


def readable(
    names: Iterable[K],
    find: Callable[[K], T | None],
    passes_over: type[LsmError] = LsmError,
) -> Iterator[tuple[K, T]]:
    """Yield what is there and can be read, by its name or id; what cannot is a finding of its own.

    Who acts on what is left passes over what is damaged alone: storage that does not answer is raised.
    """
    for name in names:
        with suppress(passes_over):
            if (value := find(name)) is not None:
                yield name, value


class Findings:
    """All problems so far, in the order in which they were found, and the files they are about."""

    def __init__(self, branch: str) -> None:
        self._branch = branch or MAIN
        self.texts: list[str] = []
        self._files: dict[str, list[tuple[Root | None, Finding]]] = {}

    def add(self, finding: Finding, *, subject: str, root: Root | None = None) -> None:
        """Take a problem of something, such as "schema 3", or of a root."""
        self.texts.append(f"{subject}: {finding}")
        if finding.path is not None:
            self._files.setdefault(finding.path, []).append((root, finding))

    def note(self, root: Root, findings: Iterable[Finding]) -> None:
        """Take what is wrong with a root."""
        for finding in findings:
            self.add(finding, subject=str(root), root=root)

    def files(self) -> list[DamagedFile]:
        """Return the files that something is wrong with."""
        return [self._file(path, findings) for path, findings in self._files.items()]

    def _file(self, path: str, findings: Sequence[tuple[Root | None, Finding]]) -> DamagedFile:
        def names(kind: str) -> tuple[int | str, ...]:
            return tuple(
                dict.fromkeys(root.name for root, _ in findings if root and root.kind == kind)
            )

        stakes = [item.stake for _, item in findings if item.stake is not None]
        return DamagedFile(
            path=path,
            problems=tuple(dict.fromkeys(item.text for _, item in findings)),
            stake=stakes[0] if stakes else None,
            snapshots=tuple(item for item in names("snapshot") if isinstance(item, int)),
            tags=tuple(str(item) for item in names("tag")),
            changelogs=tuple(item for item in names("changelog") if isinstance(item, int)),
            branches=(self._branch,),
        )


def merged(files: Iterable[DamagedFile]) -> tuple[DamagedFile, ...]:
    """Return one entry per file, of those that were found in several branches."""
    by_path: dict[str, DamagedFile] = {}
    for file in files:
        earlier = by_path.get(file.path)
        by_path[file.path] = file if earlier is None else _both(earlier, file)
    return tuple(by_path.values())


def _both(first: DamagedFile, second: DamagedFile) -> DamagedFile:
    return DamagedFile(
        path=first.path,
        problems=tuple(dict.fromkeys((*first.problems, *second.problems))),
        stake=first.stake or second.stake,
        snapshots=tuple(dict.fromkeys((*first.snapshots, *second.snapshots))),
        tags=tuple(dict.fromkeys((*first.tags, *second.tags))),
        changelogs=tuple(dict.fromkeys((*first.changelogs, *second.changelogs))),
        branches=tuple(dict.fromkeys((*first.branches, *second.branches))),
        sources=tuple(dict.fromkeys((*first.sources, *second.sources))),
        is_rebuildable=first.is_rebuildable or second.is_rebuildable,
    )
