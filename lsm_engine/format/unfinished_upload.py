"""Unfinished uploads: parts of a file in an object store, which no listing of files shows."""

from lsm_engine.base.record import record


@record
class UnfinishedUpload:
    """An upload in parts that was begun and neither completed nor aborted, with the store's id of it.

    `begun_millis`: when, by the store's own clock.
    """

    path: str
    upload_id: str
    begun_millis: int
