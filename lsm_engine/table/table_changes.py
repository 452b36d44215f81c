"""The part of a table that returns what changed. Each method is one line into a recipe below."""

from collections.abc import Sequence

import pyarrow as pa

from lsm_engine.base.errors import InvalidInputError
from lsm_engine.plan.incremental import ChangeMode
from lsm_engine.prune.where import Filter
from lsm_engine.table.changes.change_range import Point
from lsm_engine.table.changes.changelog_splits import Changes, ChangesRequest
from lsm_engine.table.changes.follow import Follower, FollowRequest, StartMode
from lsm_engine.table.ground.given_names import names_of
from lsm_engine.table.ground.session import TableSession


class TableChanges:
    """What changed between snapshots, and what changes from now on."""

    session: TableSession

    def changelog(
        self,
        after: Point | None = None,
        upto: Point | None = None,
        *,
        after_millis: int | None = None,
        upto_millis: int | None = None,
        mode: str = "auto",
        columns: str | Sequence[str] | None = None,
        where: Filter | None = None,
        overwrites: bool = False,
    ) -> pa.Table:
        """Return what changed after one snapshot, up to and including another, oldest first.

        Columns: `_snapshot_id`, `_row_kind` (+I, -U, +U, -D), and the table's; or those of `columns` alone.
        A -U stands right before its +U. See `changes`, which does not hold all rows at once.
        """
        return self.changes(
            after,
            upto,
            after_millis=after_millis,
            upto_millis=upto_millis,
            mode=mode,
            columns=columns,
            where=where,
            overwrites=overwrites,
        ).to_arrow()

    def changes(
        self,
        after: Point | None = None,
        upto: Point | None = None,
        *,
        after_millis: int | None = None,
        upto_millis: int | None = None,
        mode: str = "auto",
        columns: str | Sequence[str] | None = None,
        where: Filter | None = None,
        overwrites: bool = False,
    ) -> Changes:
        """Return a read of what changed after one snapshot, up to and including another.

        `after`, `upto`: snapshots or their ids, names of tags, or what a write returned; 0 is before
        the first snapshot. After a write comes what was committed after it, without the write's own
        rows if its changelog was there when it returned (decision 35). `after_millis`, `upto_millis`: the latest snapshot at or before a time. No start: from the oldest changes that
        are kept; no end: up to the newest snapshot. `mode`: "changelog" reads what
        `changelog-producer` made, "delta" the new rows of each commit (no -U is known), "auto" the
        changelog where there is one and else the delta; "diff" compares the two states and
        leaves out what lies between. What overwrites and restores did shows with `overwrites`, or
        `streaming-read-overwrite`: the rows emitted before and after each, compared (tables with a key).
        `where` may also read `_row_kind` and `_snapshot_id`.

        Raises ExpiredError for changes that retention has taken, NotFoundError for snapshots and tags
        that are not there, InvalidInputError for a range that ends before it begins.
        """
        request = ChangesRequest(
            after=after,
            upto=upto,
            after_millis=after_millis,
            upto_millis=upto_millis,
            mode=_mode(mode),
            columns=None if columns is None else names_of(columns, "columns"),
            where=where,
            overwrites=overwrites,
        )
        return Changes(self.session, request)

    def follow(
        self,
        start: str = "latest-full",
        *,
        after: Point | None = None,
        snapshot_id: int | None = None,
        timestamp_millis: int | None = None,
        mode: str = "auto",
        columns: str | Sequence[str] | None = None,
        where: Filter | None = None,
        consumer_id: str | None = None,
        poll_millis: int | None = 1000,
        upto: int | None = None,
    ) -> Follower:
        """Return an iterator over what each snapshot brings, waiting for new ones.

        `start`: "latest-full" (the state so far as +I, then changes), "latest" (changes),
        "from-snapshot" and "from-snapshot-full" with `snapshot_id`, "from-timestamp" with
        `timestamp_millis`. `after`, as in `changes`: the changes after it, whatever `start`. Items have `snapshot_id`, `is_full`, `to_batches()`, `to_arrow()`.
        `poll_millis` None: stop when there is nothing new; `upto`: stop after that snapshot. With
        `consumer_id` a later reader of the same name goes on where this one stopped, and expiry keeps
        what it still needs; asking for the next item acknowledges the one before.

        Whoever commits what is made of an item with its `snapshot_id` as `commit_identifier`, under one `commit_user`, may die
        anywhere and follow again: a commit with a number is applied once: a `commit_identifier` that is not greater than the last one of its
        `commit_user` changes nothing, whatever was committed or expired since, and where that last one is not kept any more
        the commit is refused (InvalidInputError, kind UNKNOWN_IDENTIFIER).
        """
        request = FollowRequest(
            start=_start(start),
            after=after,
            snapshot_id=snapshot_id,
            timestamp_millis=timestamp_millis,
            mode=_mode(mode),
            columns=None if columns is None else names_of(columns, "columns"),
            where=where,
            consumer_id=consumer_id,
            poll_millis=poll_millis,
            upto=upto,
        )
        return Follower(self.session, request)


def _mode(text: str) -> ChangeMode:
    try:
        return ChangeMode(text)
    except ValueError as cause:
        known = ", ".join(mode.value for mode in ChangeMode)
        raise InvalidInputError(f"changes are read in mode {known}", mode=text) from cause


def _start(text: str) -> StartMode:
    try:
        return StartMode(text)
    except ValueError as cause:
        known = ", ".join(mode.value for mode in StartMode)
        raise InvalidInputError(f"following starts at one of {known}", start=text) from cause
