"""Tag: a snapshot with a name, a time of creation and a lifetime."""

from dataclasses import field as attribute

from lsm_engine.base.record import record
from lsm_engine.format.snapshot import Snapshot


@record
class Tag:
    """A named snapshot; it pins the snapshot's files for as long as it exists.

    `created` is the wall clock of its maker as (year, month, day, hour, minute, second, nanosecond),
    as the format stores it; None when the maker recorded none, as of tags that are kept for ever. `retained_millis` None: for ever.
    `id`: of this content of the tag, a new one with each change; None of another client's. `content`: the
    bytes of the file that it was read from, None of a tag that is not stored. Neither counts in comparisons.
    """

    name: str
    snapshot: Snapshot
    created: tuple[int, ...] | None = None
    retained_millis: int | None = None
    id: str | None = attribute(default=None, compare=False, repr=False)
    content: bytes | None = attribute(default=None, compare=False, repr=False)
