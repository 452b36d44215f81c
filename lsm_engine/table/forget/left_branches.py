"""What is left of branches whose creation or deletion died: no branch, yet maintenance keeps its files."""

from collections.abc import Collection, Iterator

from lsm_engine.base.units import parse_age
from lsm_engine.store.branches import BranchStore
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.history.orphans import history_paths, root_paths
from lsm_engine.table.tags.branch import delete
from lsm_engine.table.tags.roots import Roots, other_branches


def left_branches(session: TableSession, traces: Collection[str]) -> Iterator[str]:
    """Yield the names of those that hold a key themselves, or keep a file that does."""
    store = BranchStore(session.file_io, session.paths)
    for line in other_branches(session):
        name = line.paths.branch_name
        if store.exists(name):
            continue
        own = {status.path for status in store.files(name)}
        referenced = history_paths(line) | root_paths(line, Roots(line).kept_tags())
        if not (own | referenced).isdisjoint(traces):
            yield name


def objection_to_taking(session: TableSession, name: str, *, is_allowed: bool, age: str) -> str:
    """Return why what is left of a branch may not go; nothing: it may."""
    description = f"what is left of branch {name!r}, whose creation or deletion died, holds a key"
    if not is_allowed:
        return f"{description}; allow rewrite_branches, or delete the branch"
    files = BranchStore(session.file_io, session.paths).files(name)
    oldest = session.file_io.now_millis() - parse_age(age)
    if any(status.modified_millis > oldest for status in files):
        return f"{description}, and may be one that is being made: it is younger than {age!r}; try later"
    return ""


def take_left_branches(session: TableSession, traces: Collection[str]) -> None:
    """Delete what is left of branches and holds a key."""
    for name in list(left_branches(session, traces)):
        delete(session, name)
