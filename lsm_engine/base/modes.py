"""Closed vocabularies: every value that a format member or an option may take."""

from enum import Enum, IntEnum


class RowKind(IntEnum):
    """What a row does to its key; the numbers are the format's."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def symbol(self) -> str:
        """The two characters users write: +I, -U, +U, -D."""
        return ("+I", "-U", "+U", "-D")[self.value]

    @property
    def is_retract(self) -> bool:
        """Whether the row takes its key away (-U, -D)."""
        return self in RETRACTS


RETRACTS = frozenset((RowKind.UPDATE_BEFORE, RowKind.DELETE))
"""The kinds that take their key away."""


class EntryKind(IntEnum):
    """What a manifest entry does with its file."""

    ADD = 0
    DELETE = 1


class FileSource(IntEnum):
    """Which act wrote a data file."""

    APPEND = 0
    COMPACT = 1


class CommitKind(Enum):
    """Why a snapshot exists."""

    APPEND = "APPEND"
    COMPACT = "COMPACT"
    OVERWRITE = "OVERWRITE"
    ANALYZE = "ANALYZE"


class MergeEngine(Enum):
    """What several rows of one key become."""

    DEDUPLICATE = "deduplicate"
    PARTIAL_UPDATE = "partial-update"
    AGGREGATION = "aggregation"
    FIRST_ROW = "first-row"


class ChangelogProducer(Enum):
    """How a table's change feed is made."""

    NONE = "none"
    INPUT = "input"
    LOOKUP = "lookup"
    FULL_COMPACTION = "full-compaction"


class SortOrder(Enum):
    """Whether the greater or the smaller sequence value is the newer one."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


class LookupCompact(Enum):
    """How soon level 0 moves up where readers or the change feed wait for it."""

    RADICAL = "radical"
    GENTLE = "gentle"


class LookupFileType(Enum):
    """What a data file becomes on local disk when keys are looked up in it."""

    COLUMNAR = "columnar"
    SORT = "sort"
    HASH = "hash"


class IndexType(Enum):
    """How incoming records find the ones that they replace."""

    BLOOM = "bloom"
    GLOBAL_BLOOM = "global-bloom"
    SIMPLE = "simple"
    GLOBAL_SIMPLE = "global-simple"
    INMEMORY = "inmemory"
    BUCKET = "bucket"

    @property
    def is_global(self) -> bool:
        """Whether a key is looked for in every partition and not in the record's own alone."""
        return self in (IndexType.GLOBAL_BLOOM, IndexType.GLOBAL_SIMPLE)

    @property
    def reads_blooms(self) -> bool:
        """Whether data files carry bloom filters of their keys."""
        return self in (IndexType.BLOOM, IndexType.GLOBAL_BLOOM)


class BloomFilterType(Enum):
    """The two bloom filters that a data file's footer may hold; the values are type codes."""

    SIMPLE = "simple"
    DYNAMIC_V0 = "dynamic-v0"


class FileFormat(Enum):
    """Formats of data files; the value is the file name's extension."""

    PARQUET = "parquet"
    ORC = "orc"
    AVRO = "avro"


class BucketMode(Enum):
    """How rows find their bucket."""

    FIXED = "fixed"
    DYNAMIC = "dynamic"
    CROSS_PARTITION = "cross-partition"
    """Dynamic, and a key has one row in all partitions: it lacks some partition columns."""
    POSTPONE = "postpone"
    UNAWARE = "unaware"


class ExternalAccess(Enum):
    """What an option that we do not honour stands in the way of."""

    READ = "read"
    WRITE = "write"
