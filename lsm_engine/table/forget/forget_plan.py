"""The plan of forgetting keys: files that hold them, rewrites, expiries and refusals."""

from collections.abc import Iterator, Sequence
from typing import Any

from lsm_engine.base.modes import CommitKind
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag
from lsm_engine.store.branches import BranchStore
from lsm_engine.store.trash import TrashStore
from lsm_engine.table.forget.forgotten_keys import ForgottenKeys, shown_text
from lsm_engine.table.forget.left_branches import left_branches, objection_to_taking
from lsm_engine.table.forget.outside import Outside, outside_of, texts_outside
from lsm_engine.table.forget.state_rewrite import KeyFiles, indexes_with_hashes
from lsm_engine.table.forget.traces import SearchReport, Trace, TraceSearch, emptied_partitions
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.history.orphans import (
    history_paths,
    metadata_paths,
    reachable_paths,
)
from lsm_engine.table.tags.branch import on_branch
from lsm_engine.table.tags.roots import Roots


@record
class ForgetScope:
    """What forgetting may touch besides the newest state and the history of the table itself.

    `rewrite_tags`: tags are written anew without the keys. `rewrite_branches`: the same for branches,
    whose history goes as well. `move_consumers`: consumers lose the changes that they have not read.
    `unreferenced_older_than`: files that nothing names go once they are older than this age; younger
    ones may belong to a commit that is being written.
    """

    rewrite_tags: bool = False
    rewrite_branches: bool = False
    move_consumers: bool = False
    unreferenced_older_than: str = "1 d"


@record
class RootRewrite:
    """A root that is kept and holds a key. `name` is for people; `rows` are stored versions."""

    name: str
    data_files: int
    rows: int
    metadata_files: int

    def __str__(self) -> str:
        return (
            f"{self.name}: {counted(self.data_files, 'data file')} ({counted(self.rows, 'row')} of the keys), "
            f"{counted(self.metadata_files, 'metadata file')}"
        )


@record
class ForgetPlan:
    """What forgetting would do; nothing has been changed.

    `traces`: every file that holds a key. `rewrites`: what is written anew. `expires`: the history
    that goes, by name; time travel to it is lost. `refusals`: what has to be allowed first, or be done
    by somebody. `outside`: what else keeps the keys on this machine and in the catalog. `file_count` and
    `byte_count`: what was searched of the table's files.
    """

    table: str
    key_count: int
    file_count: int
    byte_count: int
    traces: tuple[Trace, ...]
    unreadable: tuple[Trace, ...]
    rewrites: tuple[RootRewrite, ...]
    expires: tuple[str, ...]
    refusals: tuple[str, ...]
    unreferenced: tuple[str, ...]
    texts_elsewhere: tuple[bytes, ...]
    outside: Outside

    @property
    def is_empty(self) -> bool:
        """Whether no file, and no row of the catalog, holds a key."""
        return not (self.traces or self.rewrites or self.outside.holds)

    def facts(self) -> dict[str, Any]:
        """Return the plan as JSON holds it."""
        return {
            "table": self.table,
            "keys": self.key_count,
            "searched": {"files": self.file_count, "bytes": self.byte_count},
            "files": [
                {"kind": item.kind, "path": item.path, "detail": item.detail, "rows": item.rows}
                for item in self.traces
            ],
            "unreadable": [{"path": item.path, "reason": item.detail} for item in self.unreadable],
            "rewrites": [
                {
                    "root": item.name,
                    "data_files": item.data_files,
                    "rows": item.rows,
                    "metadata_files": item.metadata_files,
                }
                for item in self.rewrites
            ],
            "expires": list(self.expires),
            "unreferenced": list(self.unreferenced),
            "refusals": list(self.refusals),
            "in_other_rows": [text.decode("utf-8", "replace") for text in self.texts_elsewhere],
            "catalog_searched": self.outside.has_catalog,
            "catalog_rows": self.outside.catalog_rows,
            "outside": [str(item) for item in self.outside.traces],
        }

    def lines(self) -> Iterator[str]:
        """Yield the plan line by line, for people."""
        yield (
            f"{counted(self.key_count, 'key')} of {self.table}: {counted(len(self.traces), 'file')} "
            f"{'holds' if len(self.traces) == 1 else 'hold'} one"
        )
        kinds: dict[str, int] = {}
        for trace in self.traces:
            kinds[trace.kind] = kinds.get(trace.kind, 0) + 1
        yield from (f"  {count} x {kind}" for kind, count in sorted(kinds.items()))
        yield from (f"written anew: {item}" for item in self.rewrites)
        yield from (f"goes, time travel to it is lost: {item}" for item in self.expires)
        yield from (f"named by nothing: {path}" for path in self.unreferenced)
        yield from (f"cannot be decoded: {item}" for item in self.unreadable)
        yield from self.outside.lines()
        yield from (
            f"{shown_text(text)} also stands in rows of other keys, which stay"
            for text in self.texts_elsewhere
        )
        yield from (f"refused: {item}" for item in self.refusals)

    def __str__(self) -> str:
        return "\n".join(self.lines())


def lines_of(session: TableSession) -> list[TableSession]:
    """Return the table and its branches, each as it is opened by its name."""
    store = BranchStore(session.file_io, session.paths)
    names = [name for name in store.directories() if store.exists(name)]
    return [session, *(on_branch(session, name) for name in names)]


def shown(line: TableSession) -> str:
    """Return how a branch is called in plans."""
    name = line.paths.branch_name
    return f"branch {name!r}" if name else "the table"


class RootFindings:
    """What of the traces each root names."""

    def __init__(self, keys: ForgottenKeys, files: KeyFiles, traces: frozenset[str]) -> None:
        self._keys = keys
        self._files = files
        self._traces = traces

    def rewrite(
        self, line: TableSession, snapshot: Snapshot, name: str, *, is_tag: bool
    ) -> RootRewrite | None:
        """Return what has to be written anew of a root; None: it holds no key."""
        live = line.live_entries(snapshot)
        holding = self._files.holding(line, live)
        names = Roots(line).tag_names(snapshot) if is_tag else Roots(line).metadata_names(snapshot)
        paths = set(metadata_paths(line.paths, names)) & self._traces
        stale = list(indexes_with_hashes(line, snapshot, self._keys, _without(live, holding)))
        is_named = not is_tag and line.paths.snapshot_file(snapshot.id) in self._traces
        if not (holding or paths or stale or is_named):
            return None
        return RootRewrite(
            name=name,
            data_files=len(holding),
            rows=sum(len(positions) for _, positions in holding),
            metadata_files=len(paths) + len(stale),
        )

    def touch(self, line: TableSession) -> bool:
        """Whether a key is in what the snapshots and changelogs of a branch name, or in themselves."""
        own = (line.paths.snapshot_directory, line.paths.changelog_directory)
        return any(
            path.startswith(f"{directory}/") for path in self._traces for directory in own
        ) or bool(self._traces & history_paths(line))


def _without(live: Sequence[Any], holding: Sequence[tuple[Any, Any]]) -> list[Any]:
    deleted = {entry.identity for entry, _ in holding}
    return [entry for entry in live if entry.identity not in deleted]


def plan_forget(
    session: TableSession, keys: ForgottenKeys, scope: ForgetScope
) -> tuple[ForgetPlan, frozenset[str]]:
    """Look everywhere; return the plan, and the paths of the files that hold a key."""
    search = TraceSearch(session, keys)
    texts = texts_outside(session, keys)
    report = search.run(text for _, text in texts)
    traced = frozenset(trace.path for trace in report.traces)
    findings = RootFindings(keys, KeyFiles(keys), traced)
    rewrites: list[RootRewrite] = []
    expires: list[str] = []
    refusals: list[str] = []
    lines = lines_of(session)
    for line in lines:
        own, expired, objections = _plan_line(line, findings, scope)
        rewrites += own
        expires += expired
        refusals += objections
    for name in left_branches(session, traced):
        age = scope.unreferenced_older_than
        objection = objection_to_taking(session, name, is_allowed=scope.rewrite_branches, age=age)
        refusals += [objection] if objection else []
        expires.append(f"what is left of branch {name!r}")
    trash = TrashStore(session.file_io, session.paths).list()
    if trash and (traced or rewrites):
        expires.append(f"{counted(len(trash), 'record')} of the trash")
    reachable = reachable_paths(session) if traced or report.unreadable else set()
    damaged = [
        trace_unreadable.path
        for trace_unreadable in report.unreadable
        if trace_unreadable.path in reachable
    ]
    if damaged:
        refusals.append(
            f"{counted(len(damaged), 'file')} that the table names cannot be decoded, such as {damaged[0]}; "
            "see verify(deep=True), and repair"
        )
    plan = ForgetPlan(
        table=session.name,
        key_count=keys.count,
        file_count=report.file_count,
        byte_count=report.byte_count,
        traces=report.traces,
        unreadable=report.unreadable,
        rewrites=tuple(rewrites),
        expires=tuple(expires),
        refusals=tuple(refusals),
        unreferenced=_unreferenced(report, reachable),
        texts_elsewhere=report.texts_elsewhere,
        outside=outside_of(
            session,
            keys.stored(emptied_partitions(session, keys)),
            (trace for trace, text in texts if text not in report.texts_elsewhere),
        ),
    )
    return plan, traced


def _unreferenced(report: SearchReport, reachable: set[str]) -> tuple[str, ...]:
    data = ("data file", "changelog file", "manifest", "manifest list", "index manifest")
    return tuple(
        trace.path
        for trace in (*report.traces, *report.unreadable)
        if trace.kind in data and trace.path not in reachable
    )


def _plan_line(
    line: TableSession, findings: RootFindings, scope: ForgetScope
) -> tuple[list[RootRewrite], list[str], list[str]]:
    """Return what of a branch is written anew, what of it goes, and what objects."""
    rewrites: list[RootRewrite] = []
    refusals: list[str] = []
    latest = line.snapshots.latest()
    head = None
    if latest is not None:
        head = findings.rewrite(line, latest, f"newest state of {shown(line)}", is_tag=False)
    rewrites += [] if head is None else [head]
    tags = [
        (tag, rewrite)
        for tag in line.tags.stable_listing()
        if (rewrite := _of_tag(line, tag, findings)) is not None
    ]
    rewrites += [rewrite for _, rewrite in tags]
    if tags and not scope.rewrite_tags:
        names = ", ".join(repr(tag.name) for tag, _ in tags)
        refusals.append(
            f"tags {names} of {shown(line)} hold a key; allow rewrite_tags, or delete them"
        )
    holds = head is not None or findings.touch(line)
    if line.paths.branch_name and (holds or rewrites) and not scope.rewrite_branches:
        refusals.append(f"{shown(line)} holds a key; allow rewrite_branches, or delete it")
    if holds and not scope.move_consumers:
        refusals += [
            f"consumer {name!r} of {shown(line)} has not read all changes; let it, or allow "
            "move_consumers"
            for name in consumers_behind(line)
        ]
    expired = list(_history(line)) if holds else []
    return rewrites, expired, refusals


def _of_tag(line: TableSession, tag: Tag, findings: RootFindings) -> RootRewrite | None:
    return findings.rewrite(line, tag.snapshot, f"tag {tag.name!r} of {shown(line)}", is_tag=True)


def _history(line: TableSession) -> Iterator[str]:
    """Yield what goes of a branch's history: all but its newest state."""
    older = line.snapshots.ids()[:-1]
    if older:
        yield f"snapshots {older[0]} to {older[-1]} of {shown(line)}"
    latest = line.snapshots.latest_id()
    if latest is not None:
        yield f"snapshot {latest} of {shown(line)}, which a new one follows"
    changelogs = line.changelogs.ids()
    if changelogs:
        yield f"changelogs {changelogs[0]} to {changelogs[-1]} of {shown(line)}"


def consumers_behind(line: TableSession, until: int | None = None) -> list[str]:
    """Return the consumers that have not read all changes of a branch; `until`: below this snapshot."""
    behind = []
    snapshots = line.snapshots.stable_listing()
    for consumer in line.consumers.list():
        unread = [
            snapshot
            for snapshot in snapshots
            if snapshot.id >= consumer.next_snapshot_id and (until is None or snapshot.id < until)
        ]
        if any(
            snapshot.commit_kind is not CommitKind.COMPACT
            or snapshot.changelog_manifest_list is not None
            for snapshot in unread
        ):
            behind.append(consumer.name)
    return behind
