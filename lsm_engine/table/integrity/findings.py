"""What verification finds: problems, the files and roots that they concern, and what is left of those."""

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
    named = (error.facts.get("file"), error.facts.get("path"))
    known = [one for one in named if isinstance(one, str)]
    path = known[0] if known else None if stake is None else stake.path
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
            f"{kind} {', '.join(str(one) for one in names)}"
            for kind, names in (
                ("snapshots", _ranges(self.snapshots)),
                ("tags", self.tags),
                ("changelogs", _ranges(self.changelogs)),
                ("branches", tuple(one for one in self.branches if one != MAIN)),
            )
            if names
        ]
        held = f" held {self.stake}" if self.stake is not None else ""
        parts = [f"{self.path}{held}", *roots, *self.sources]
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
            if (found := find(name)) is not None:
                yield name, found


class Findings:
    """All problems so far, in the order in which they were found, and the files they are about."""

    def __init__(self, branch: str) -> None:
        self._branch = branch or MAIN
        self.texts: list[str] = []
        self._files: dict[str, list[tuple[Root | None, Finding]]] = {}

    def add(self, found: Finding, *, of: str, root: Root | None = None) -> None:
        """Take a problem of something, such as "schema 3", or of a root."""
        self.texts.append(f"{of}: {found}")
        if found.path is not None:
            self._files.setdefault(found.path, []).append((root, found))

    def note(self, root: Root, found: Iterable[Finding]) -> None:
        """Take what is wrong with a root."""
        for one in found:
            self.add(one, of=str(root), root=root)

    def files(self) -> list[DamagedFile]:
        """Return the files that something is wrong with."""
        return [self._file(path, found) for path, found in self._files.items()]

    def _file(self, path: str, found: Sequence[tuple[Root | None, Finding]]) -> DamagedFile:
        def named(kind: str) -> tuple[int | str, ...]:
            return tuple(
                dict.fromkeys(root.name for root, _ in found if root and root.kind == kind)
            )

        stakes = [one.stake for _, one in found if one.stake is not None]
        return DamagedFile(
            path=path,
            problems=tuple(dict.fromkeys(one.text for _, one in found)),
            stake=stakes[0] if stakes else None,
            snapshots=tuple(one for one in named("snapshot") if isinstance(one, int)),
            tags=tuple(str(one) for one in named("tag")),
            changelogs=tuple(one for one in named("changelog") if isinstance(one, int)),
            branches=(self._branch,),
        )


def merged(files: Iterable[DamagedFile]) -> tuple[DamagedFile, ...]:
    """Return one entry per file, of those that were found in several branches."""
    by_path: dict[str, DamagedFile] = {}
    for one in files:
        other = by_path.get(one.path)
        by_path[one.path] = one if other is None else _both(other, one)
    return tuple(by_path.values())


def _both(one: DamagedFile, other: DamagedFile) -> DamagedFile:
    return DamagedFile(
        path=one.path,
        problems=tuple(dict.fromkeys((*one.problems, *other.problems))),
        stake=one.stake or other.stake,
        snapshots=tuple(dict.fromkeys((*one.snapshots, *other.snapshots))),
        tags=tuple(dict.fromkeys((*one.tags, *other.tags))),
        changelogs=tuple(dict.fromkeys((*one.changelogs, *other.changelogs))),
        branches=tuple(dict.fromkeys((*one.branches, *other.branches))),
        sources=tuple(dict.fromkeys((*one.sources, *other.sources))),
        is_rebuildable=one.is_rebuildable or other.is_rebuildable,
    )
