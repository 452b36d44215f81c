"""What a retention would leave readable, what it would free, and what each root keeps on disk."""

from collections.abc import Iterable, Mapping, Sequence

from lsm_engine.base.record import record
from lsm_engine.base.units import counted, format_bytes
from lsm_engine.plan.expire import DeadFile, ExpirePlan, PhysicalFile
from lsm_engine.plan.file_history import ranges
from lsm_engine.plan.retention import Retention


@record
class RootPin:
    """History that one root keeps: data files that the newest snapshot no longer reads.

    `only_*`: those that no other root keeps, so what deleting this root would free.
    """

    name: str
    file_count: int
    size_bytes: int
    only_file_count: int
    only_size_bytes: int


@record
class RetentionSimulation:
    """What expiry with `retention` at `at_millis` would do; nothing was touched.

    `readable`: snapshot ids left; `tags`: names that stay readable. `pins`: roots that keep history,
    the one whose removal frees most first. `plan` is what expiry itself would carry out, `changelogs`
    the same for changelogs that have outlived their snapshots.
    """

    table: str
    retention: Retention
    at_millis: int
    readable: tuple[int, ...]
    tags: tuple[str, ...]
    expired_tags: tuple[str, ...]
    plan: ExpirePlan
    changelogs: ExpirePlan | None
    pins: tuple[RootPin, ...]

    @property
    def expired(self) -> tuple[int, ...]:
        """Ids of the snapshots that would go."""
        return tuple(snapshot.id for snapshot in self.plan.expired)

    @property
    def freed_file_count(self) -> int:
        """Data and changelog files that would go."""
        return sum(len(plan.data_files) + len(plan.changelog_files) for plan in self._plans)

    @property
    def freed_bytes(self) -> int:
        """Bytes of data and changelog files that would go."""
        return sum(plan.freed_bytes for plan in self._plans)

    @property
    def _plans(self) -> tuple[ExpirePlan, ...]:
        return (self.plan,) if self.changelogs is None else (self.plan, self.changelogs)

    def text(self) -> str:
        """Render for people."""
        lines = [
            f"{self.table} under this retention",
            f"  readable: snapshots {ranges(self.readable) or 'none'}"
            + (f"; tags {', '.join(self.tags)}" if self.tags else "; no tags")
            + (f"; tags over: {', '.join(self.expired_tags)}" if self.expired_tags else ""),
            f"  would expire: snapshots {ranges(self.expired) or 'none'}; {self.plan.reason}",
            f"  would free: {counted(self.freed_file_count, 'file')}, {format_bytes(self.freed_bytes)}",
        ]
        lines += [
            f"  {pin.name} keeps {counted(pin.file_count, 'file')}, {format_bytes(pin.size_bytes)}; "
            f"alone {pin.only_file_count}, {format_bytes(pin.only_size_bytes)}"
            for pin in self.pins
        ]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()


def pins_of(
    history: Mapping[PhysicalFile, DeadFile],
    held_files: Sequence[tuple[str, Iterable[PhysicalFile]]],
) -> tuple[RootPin, ...]:
    """Return what each root keeps of `history`: the files that the newest snapshot does not read.

    `held`: the name of each root, and the files that it names (those outside of history count not).
    """
    pinned = [(name, history.keys() & set(files)) for name, files in held_files]
    holders: dict[PhysicalFile, int] = {}
    for _, files in pinned:
        for file in files:
            holders[file] = holders.get(file, 0) + 1
    pins = [
        RootPin(
            name=name,
            file_count=len(files),
            size_bytes=sum(history[file].file_size for file in files),
            only_file_count=sum(holders[file] == 1 for file in files),
            only_size_bytes=sum(history[file].file_size for file in files if holders[file] == 1),
        )
        for name, files in pinned
        if files
    ]
    return tuple(sorted(pins, key=lambda pin: (-pin.only_size_bytes, -pin.size_bytes, pin.name)))
