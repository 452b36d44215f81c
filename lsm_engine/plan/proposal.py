"""What a commit proposes, as a value, before it is known on which snapshot it lands.

The engine (table/commit/commit) fits a proposal to the newest snapshot, and again to each newer one that takes
the id it tried for, until it has landed, is known to be lost, or its outcome is unknown.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import TypedDict

from lsm_engine.base.ids import BATCH_COMMIT_IDENTIFIER
from lsm_engine.base.modes import CommitKind
from lsm_engine.base.record import record
from lsm_engine.meta.commit_message import CommitMessage, Committable
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.commit_steps import CommitStep, steps_of


class CommitOptions(TypedDict, total=False):
    """Who commits, and what the snapshot says about it: keyword arguments of every write.

    `commit_user`: default a new id. `commit_identifier`: a number that grows with each commit of the
    user; a commit whose number is not greater than the user's last one is a replay, and changes
    nothing. `properties`: what the snapshot carries, as text.
    """

    commit_user: str | None
    commit_identifier: int
    properties: Mapping[str, str] | None


@record
class CommitIdentity:
    """Who commits, and which of their commits it is; the pair makes a replay known.

    `watermark`: the time, in milliseconds since 1970, up to which all events of a stream are in the table
    once this is. `restates`: the identifier is stated to be the user's last one, whatever it was before; with
    `others_are_new` also that users have none of which nothing is known.
    """

    commit_user: str
    commit_identifier: int = BATCH_COMMIT_IDENTIFIER
    properties: Mapping[str, str] | None = None
    watermark: int | None = None
    restates: bool = False
    others_are_new: bool = False

    @property
    def is_numbered(self) -> bool:
        """Whether a replay can be known by its identifier."""
        return self.commit_identifier != BATCH_COMMIT_IDENTIFIER


@record
class LiveChange:
    """What a commit takes from the snapshot it lands on, and brings back: files that exist already.

    `state` is the former snapshot whose index manifest and watermark the new one takes over.
    `rewrites_manifests`: the base manifests are written anew, as additions alone, so that a file that
    was taken away once may come back: readers fold entries without looking at their order. `base_record_count`:
    rows in the files of the base, where its own count is not gone by.
    `drops_statistics`: what ANALYZE wrote about the base is not handed on.
    """

    deleted: tuple[ManifestEntry, ...] = ()
    back: tuple[ManifestEntry, ...] = ()
    state: Snapshot | None = None
    rewrites_manifests: bool = False
    base_record_count: int | None = None
    drops_statistics: bool = False


NO_CHANGE = LiveChange()
# These two are asked, and are no values: which files go, or how many rows a write replaced, is only known
# from the manifests and data files of the base, which the plan does not read. They may read what the base
# names, and nothing newer; they change nothing, as each is asked again on the next base.
ChooseOnBase = Callable[[Snapshot | None], LiveChange | None]
"""Chooses what changes on a base; None: nothing has to change, and nothing is committed."""
PropertiesOnBase = Callable[[Snapshot | None, Sequence[ManifestEntry]], Mapping[str, str]]
"""Returns properties to add, for each base that a write is tried on, with the write's files."""


@record
class SameState:
    """A precondition: nothing was committed after `on` (None: nothing at all, ever)."""

    on: Snapshot | None


@record
class RowsUnchanged:
    """A precondition: since `on`, where rows were looked up, only compactions were committed."""

    on: Snapshot | None


Precondition = SameState | RowsUnchanged
"""What has to hold on the base of a commit besides the absence of conflicting files (plan/conflicts)."""


@record
class Proposal:
    """Staged work, and what to change on whatever snapshot it lands on.

    `messages` were staged against `planned_on`. `kind` is that of the first snapshot. `choose` is
    asked on each base; a proposal without it changes nothing but by its messages. Where what it
    `requires` does not hold on a base, the commit is given up. `properties_on` adds to the properties.
    """

    identity: CommitIdentity
    messages: tuple[CommitMessage, ...] = ()
    planned_on: Snapshot | None = None
    kind: CommitKind = CommitKind.APPEND
    choose: ChooseOnBase | None = None
    requires: Precondition | None = None
    properties_on: PropertiesOnBase | None = None

    def steps(self, uuids: Sequence[str], *, force: bool) -> tuple[CommitStep, ...]:
        """Return the snapshots that are asked for; see `commit_steps.steps_of`."""
        committable = Committable(
            commit_user=self.identity.commit_user,
            commit_identifier=self.identity.commit_identifier,
            messages=self.messages,
            properties=self.identity.properties,
            watermark=self.identity.watermark,
        )
        return steps_of(committable, uuids=uuids, first=self.kind, force=force)


def overwriting(
    choose: Callable[[Snapshot | None], Iterable[ManifestEntry]],
) -> ChooseOnBase:
    """Return what takes live entries away that `choose` picks on each base."""
    return lambda base: LiveChange(deleted=tuple(choose(base)))


class CommitOutcome(Enum):
    """How an attempt to publish a snapshot ended; an unknown outcome is a CommitUnknownError."""

    LANDED = "landed"
    """It is visible and counts."""
    LOST = "lost"
    """Somebody else has the id, or it was revoked: nothing of it is visible."""


def retry_wait_millis(lost: int, *, least: int, longest: int, fraction: float) -> int:
    """Return how long to wait after the `lost`-th lost race; `fraction` from 0 to 1 is random.

    All of it is jitter: up to `least`, after more losses up to a half, a third, a quarter of that, at
    most `longest`. Who has lost most waits least: a writer that backs off further with each loss never
    lands beside one that does not lose (decisions/0033).
    """
    return int(min(longest, least / min(lost, _SHORTEST_PART)) * fraction)


_SHORTEST_PART = 4


def rewrite_wait_millis(lost: int, *, least: int, longest: int, fraction: float) -> int:
    """Return how long to wait where each try rewrites rows, as a compaction does: the wait doubles.

    Half of it is jitter; `least` is the first, `longest` the last. Here a try is dear, and what is not
    compacted stays due: fairness to who lost matters less than work that is thrown away.
    """
    return int(min(longest, least << min(lost - 1, 20)) * (0.5 + fraction / 2))
