"""Turn the written files of all buckets into commit messages."""

from collections.abc import Iterable, Sequence

from lsm_engine.base.record import record
from lsm_engine.io.written_file import WrittenFile, metas_of
from lsm_engine.meta.commit_message import CommitMessage, DataIncrement


@record
class WrittenBucket:
    """The finished files of one bucket; none where no row came. `partition` is a stored row."""

    partition: bytes
    bucket: int
    total_buckets: int
    files: Sequence[WrittenFile]
    changelog_files: Sequence[WrittenFile] = ()


def messages_of(written: Iterable[WrittenBucket]) -> list[CommitMessage]:
    """Return a commit message for each bucket with files; one pass computes their statistics."""
    buckets = [bucket for bucket in written if bucket.files or bucket.changelog_files]
    metas = iter(
        metas_of(
            [
                file
                for written_bucket in buckets
                for file in (*written_bucket.files, *written_bucket.changelog_files)
            ]
        )
    )
    return [
        CommitMessage(
            partition=bucket.partition,
            bucket=bucket.bucket,
            total_buckets=bucket.total_buckets,
            data=DataIncrement(
                new_files=tuple(next(metas) for _ in bucket.files),
                changelog_files=tuple(next(metas) for _ in bucket.changelog_files),
            ),
        )
        for bucket in buckets
    ]
