"""What a disk may hold after a power cut: the trace of system calls, minus what was not synced.

The model is POSIX at its strictest. Bytes of a file are safe once that file is synced; a name (made,
linked, renamed, removed, a directory's own) once the directory that holds it is. Anything else may be
there or not, independently; bytes that were not synced may be whole, half or none.
"""

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from tests.fault.system_calls import Event

STATES_PER_PREFIX = 64


@dataclass
class Disk:
    """Names and bytes that are safe, and changes that are not, oldest first."""

    names: dict[str, int]
    content: dict[int, bytes]
    directories: set[str]
    pending: list[Event] = field(default_factory=list)
    unsynced: dict[int, bytes] = field(default_factory=dict)

    def apply(self, event: Event) -> None:
        """One call returned."""
        match event.verb:
            case "write":
                if event.inode not in self.content or self.content[event.inode] != event.content:
                    self.unsynced[event.inode] = event.content
            case "sync file":
                self.unsynced.pop(event.inode, None)
                self.content[event.inode] = event.content
            case "sync directory":
                safe = [one for one in self.pending if event.path in _directories(one)]
                self.pending = [one for one in self.pending if one not in safe]
                for one in safe:
                    _rename(self.names, self.directories, one)
            case _:
                self.pending.append(event)


def _directories(event: Event) -> set[str]:
    """The directories whose sync makes a change safe."""
    paths = (event.to,) if event.verb == "link" else (event.path, event.to)
    return {_parent(path) for path in paths if path}


def _parent(path: str) -> str:
    return posixpath.dirname(path) or "."


def _rename(names: dict[str, int], directories: set[str], event: Event) -> None:
    match event.verb:
        case "create":
            names[event.path] = event.inode
        case "link":
            names[event.to] = event.inode
        case "rename":
            names.pop(event.path, None)
            names[event.to] = event.inode
        case "unlink":
            names.pop(event.path, None)
        case "mkdir":
            directories.add(event.path)
        case "rmdir":
            directories.discard(event.path)


def crash_states(
    before: dict[str, bytes], trace: Sequence[Event]
) -> Iterator[tuple[int, dict[str, bytes]]]:
    """Yield (number of calls that had returned, files on disk) for every prefix of a trace.

    `before` holds the files that were safe at the start. Per prefix: nothing lost, everything lost,
    every single loss, every pair of losses, up to STATES_PER_PREFIX.
    """
    disk = _started(before)
    events = _with_ids(trace)
    for done in range(len(trace) + 1):
        if done:
            disk.apply(events[done - 1])
        seen: set[frozenset[tuple[str, bytes]]] = set()
        for files in _states(disk):
            fingerprint = frozenset(files.items())
            if fingerprint not in seen:
                seen.add(fingerprint)
                yield done, files


def _with_ids(trace: Sequence[Event]) -> list[Event]:
    """Number files anew: a disk gives the inode of a file that is gone to the next one that is made."""
    ids: dict[int, int] = {}
    events = []
    for at, event in enumerate(trace, 1):
        if event.verb == "create":
            ids[event.inode] = at
        events.append(replace(event, inode=ids.get(event.inode, event.inode)))
    return events


def _started(before: dict[str, bytes]) -> Disk:
    names = {path: -number for number, path in enumerate(before, 1)}
    directories = {"."}
    for path in before:
        while path:
            path = posixpath.dirname(path)
            directories.add(path or ".")
    return Disk(names, {names[path]: data for path, data in before.items()}, directories)


def _states(disk: Disk) -> Iterator[dict[str, bytes]]:
    losses: list[Event | int] = [*disk.pending, *disk.unsynced]
    chosen: list[tuple[Event | int, ...]] = [(), tuple(losses)]
    chosen += [tuple(losses[:count]) for count in range(1, len(losses))]
    chosen += [tuple(losses[count:]) for count in range(1, len(losses))]
    chosen += [(one,) for one in losses]
    chosen += list(combinations(losses, 2))
    for lost in chosen[:STATES_PER_PREFIX]:
        for torn in (False, True):
            yield _files(disk, lost, torn=torn)


def _files(disk: Disk, lost: Sequence[Event | int], *, torn: bool) -> dict[str, bytes]:
    names, directories = dict(disk.names), set(disk.directories)
    for event in disk.pending:
        if not any(one is event for one in lost):
            _rename(names, directories, event)
    gone = {one for one in lost if isinstance(one, int)}
    files = {}
    for path, inode in names.items():
        if not _is_reached(path, directories):
            continue
        content = disk.content.get(inode, b"")
        if inode in disk.unsynced:
            whole = disk.unsynced[inode]
            content = whole if inode not in gone else whole[: len(whole) // 2] if torn else content
        files[path] = content
    return files


def _is_reached(path: str, directories: set[str]) -> bool:
    parent = _parent(path)
    while parent != ".":
        if parent not in directories:
            return False
        parent = _parent(parent)
    return True
