"""Consumer: a named reader of changes, and how far it has got."""

from dataclasses import field as attribute

from lsm_engine.base.record import record


@record
class Consumer:
    """A named reader. `next_snapshot_id` is what it reads next: expiry keeps that and what follows.

    `modified_millis`: when it last moved, by the storage's own clock. `content`: the bytes of the file that it
    was read from, None of a consumer that is not stored; they do not count in comparisons.
    """

    name: str
    next_snapshot_id: int
    modified_millis: int = 0
    content: bytes | None = attribute(default=None, compare=False, repr=False)
