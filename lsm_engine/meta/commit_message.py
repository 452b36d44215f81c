"""What writers and compactions hand to a commit. Values that pickle and travel."""

from collections.abc import Mapping

from lsm_engine.base.ids import BATCH_COMMIT_IDENTIFIER
from lsm_engine.base.record import record
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.index_file import IndexFileMeta


@record
class DataIncrement:
    """Files that a writer made. `deleted_files`: replaced by an overwrite or a rewrite of appends."""

    new_files: tuple[DataFileMeta, ...] = ()
    deleted_files: tuple[DataFileMeta, ...] = ()
    changelog_files: tuple[DataFileMeta, ...] = ()
    new_index_files: tuple[IndexFileMeta, ...] = ()
    deleted_index_files: tuple[IndexFileMeta, ...] = ()


@record
class CompactIncrement:
    """What a compaction took and gave. A file in `before` and `after` under one name was upgraded."""

    before: tuple[DataFileMeta, ...] = ()
    after: tuple[DataFileMeta, ...] = ()
    changelog_files: tuple[DataFileMeta, ...] = ()
    new_index_files: tuple[IndexFileMeta, ...] = ()
    deleted_index_files: tuple[IndexFileMeta, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed."""
        files = self.before or self.after or self.changelog_files
        return not (files or self.new_index_files or self.deleted_index_files)


@record
class CommitMessage:
    """The work done in one bucket. `partition` is a stored row."""

    partition: bytes
    bucket: int
    total_buckets: int
    data: DataIncrement = DataIncrement()
    compact: CompactIncrement = CompactIncrement()


@record
class Committable:
    """Everything one commit publishes, with the identity that makes a replay a no-op."""

    commit_user: str
    messages: tuple[CommitMessage, ...]
    commit_identifier: int = BATCH_COMMIT_IDENTIFIER
    properties: Mapping[str, str] | None = None
    watermark: int | None = None
