"""Tags that a batch read makes for itself, so that what it reads outlives an expiry meanwhile.

`scan.plan-auto-tag-for-read.time-retained` asks for them. Who reads to the end takes the tag back;
who does not know when that is, or dies, leaves it for the time that the option sets.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from lsm_engine.base.errors import LsmError
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag
from lsm_engine.plan.tags import READ_PREFIX
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.tags import tag as tags

log = logging.getLogger(__name__)


BranchSnapshot = tuple[TableSession, Snapshot]
"""A branch of the table, and its snapshot that is read."""


def tag_for_read(branch: BranchSnapshot, lifetime_millis: int) -> Tag:
    """Tag what is about to be read.

    Raises NotFoundError (expired) for a snapshot that an expiry has got hold of.
    """
    session, snapshot = branch
    return tags.of(session, f"{READ_PREFIX}{session.ids.new_id()}", snapshot, lifetime_millis)


@contextmanager
def tagged(branches: Iterable[BranchSnapshot], lifetime_millis: int | None) -> Iterator[None]:
    """Keep snapshots of branches while they are read; `lifetime_millis` None: do not."""
    with ExitStack() as made:
        if lifetime_millis is not None:
            for branch in branches:
                made.callback(_take_back, branch[0], tag_for_read(branch, lifetime_millis))
        yield


def _take_back(session: TableSession, tag: Tag) -> None:
    """Delete a tag, with files that it was the last to name; a failure leaves it to expire."""
    try:
        if not tags.delete_as_read(session, tag):
            log.info("tag %s of a read has expired or changed before its end", tag.name)
    except LsmError as error:
        log.warning("tag %s of a read stays until it expires: %s", tag.name, error)
