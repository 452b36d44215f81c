"""Closed vocabularies: every value that a format member or an option may take.

What a mode means for the rest of the code is its `policy`: facts that are decided here, once per member.
Elsewhere code asks the policy, or matches every member; a new member then has to be decided everywhere.
"""

from enum import Enum, IntEnum
from functools import cached_property

from lsm_engine.base.record import record


class RowKind(IntEnum):
    """The kind of a change: insert, update or delete; the numbers are those of the format."""

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
    """Whether a manifest entry adds or deletes its file."""

    ADD = 0
    DELETE = 1


class FileSource(IntEnum):
    """The operation that wrote a data file."""

    APPEND = 0
    COMPACT = 1


class CommitKind(Enum):
    """Why a snapshot exists."""

    APPEND = "APPEND"
    COMPACT = "COMPACT"
    OVERWRITE = "OVERWRITE"
    ANALYZE = "ANALYZE"


@record
class MergePolicy:
    """The properties of a merge engine."""

    keeps_newest_row: bool
    keeps_first_row: bool
    has_sequence_groups: bool
    has_functions: bool

    @property
    def combines_versions(self) -> bool:
        """Whether a row is put together from several versions, so that all of them count."""
        return not (self.keeps_newest_row or self.keeps_first_row)


class MergeEngine(Enum):
    """How the rows of one key are merged."""

    DEDUPLICATE = "deduplicate"
    PARTIAL_UPDATE = "partial-update"
    AGGREGATION = "aggregation"
    FIRST_ROW = "first-row"

    @cached_property
    def policy(self) -> MergePolicy:
        """The properties of the engine."""
        match self:
            case MergeEngine.DEDUPLICATE:
                newest, first, groups, functions = True, False, False, False
            case MergeEngine.PARTIAL_UPDATE:
                newest, first, groups, functions = False, False, True, False
            case MergeEngine.AGGREGATION:
                newest, first, groups, functions = False, False, False, True
            case MergeEngine.FIRST_ROW:
                newest, first, groups, functions = False, True, False, False
        return MergePolicy(
            keeps_newest_row=newest,
            keeps_first_row=first,
            has_sequence_groups=groups,
            has_functions=functions,
        )


@record
class ChangelogPolicy:
    """Where the changelog of a table comes from."""

    reads_delta: bool
    """There is none: readers of changes read new files."""
    logs_input: bool
    """It is written with level 0, every row that came."""
    looks_up: bool
    """The compaction that empties level 0 compares with rows that it looks up."""
    waits_for_full_compaction: bool
    """The full compaction compares with the last level."""

    @property
    def compares(self) -> bool:
        """Whether a compaction emits what has changed, knowing the row before."""
        return self.looks_up or self.waits_for_full_compaction


class ChangelogProducer(Enum):
    """How a table's change feed is made."""

    NONE = "none"
    INPUT = "input"
    LOOKUP = "lookup"
    FULL_COMPACTION = "full-compaction"

    @cached_property
    def policy(self) -> ChangelogPolicy:
        """The properties of the producer."""
        match self:
            case ChangelogProducer.NONE:
                delta, logs, looks_up, full = True, False, False, False
            case ChangelogProducer.INPUT:
                delta, logs, looks_up, full = False, True, False, False
            case ChangelogProducer.LOOKUP:
                delta, logs, looks_up, full = False, False, True, False
            case ChangelogProducer.FULL_COMPACTION:
                delta, logs, looks_up, full = False, False, False, True
        return ChangelogPolicy(
            reads_delta=delta,
            logs_input=logs,
            looks_up=looks_up,
            waits_for_full_compaction=full,
        )


class SortOrder(Enum):
    """Whether the greater or the smaller sequence value is the newer one."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


class LookupCompact(Enum):
    """How soon level 0 moves up where readers or the change feed wait for it."""

    RADICAL = "radical"
    GENTLE = "gentle"


@record
class LookupFilePolicy:
    """The properties of a lookup file."""

    gathers_columns: bool
    """Found rows are gathered from mapped columns; else each is a stored value of its own."""


class LookupFileType(Enum):
    """The type of the local file that keys of a data file are looked up in."""

    COLUMNAR = "columnar"
    SORT = "sort"
    HASH = "hash"

    @cached_property
    def policy(self) -> LookupFilePolicy:
        """The properties of the type."""
        match self:
            case LookupFileType.COLUMNAR:
                return LookupFilePolicy(gathers_columns=True)
            case LookupFileType.SORT | LookupFileType.HASH:
                return LookupFilePolicy(gathers_columns=False)


@record
class IndexPolicy:
    """How incoming records find the ones that they replace."""

    uses_lookups: bool
    """Through the levels of each bucket, by lookup files."""
    keeps_keys: bool
    """Keys of data files stay in memory from one search to the next."""
    is_global: bool
    """A key is looked for in every partition and not in the record's own alone."""
    reads_blooms: bool
    """Data files carry bloom filters of their keys."""


class FileIndexType(Enum):
    """The type of a file index of a column; the value is its name in options and files."""

    BLOOM_FILTER = "bloom-filter"
    BITMAP = "bitmap"
    BSI = "bsi"
    RANGE_BITMAP = "range-bitmap"


class IndexType(Enum):
    """How incoming records find the ones that they replace."""

    BLOOM = "bloom"
    GLOBAL_BLOOM = "global-bloom"
    SIMPLE = "simple"
    GLOBAL_SIMPLE = "global-simple"
    INMEMORY = "inmemory"
    BUCKET = "bucket"

    @cached_property
    def policy(self) -> IndexPolicy:
        """The properties of the type."""
        lookups, keeps, everywhere, blooms = False, False, False, False
        match self:
            case IndexType.BLOOM:
                blooms = True
            case IndexType.GLOBAL_BLOOM:
                everywhere, blooms = True, True
            case IndexType.SIMPLE:
                pass
            case IndexType.GLOBAL_SIMPLE:
                everywhere = True
            case IndexType.INMEMORY:
                keeps = True
            case IndexType.BUCKET:
                lookups = True
        return IndexPolicy(
            uses_lookups=lookups, keeps_keys=keeps, is_global=everywhere, reads_blooms=blooms
        )


class BloomFilterType(Enum):
    """The two bloom filters that a data file's footer may hold; the values are type codes."""

    SIMPLE = "simple"
    DYNAMIC_V0 = "dynamic-v0"


@record
class FormatPolicy:
    """The properties of a file format."""

    has_footer: bool
    """A Parquet footer: statistics, record keys and row groups are known without reading rows."""
    decodes_whole: bool
    """A file is decoded from its beginning: no part of it can be read alone."""
    has_field_ids: bool
    """Columns of its files have the ids of fields by which readers of Iceberg find them."""


class FileFormat(Enum):
    """Formats of data files; the value is the file name's extension."""

    PARQUET = "parquet"
    ORC = "orc"
    AVRO = "avro"

    @cached_property
    def policy(self) -> FormatPolicy:
        """The properties of the format."""
        match self:
            case FileFormat.PARQUET:
                return FormatPolicy(has_footer=True, decodes_whole=False, has_field_ids=True)
            case FileFormat.ORC:
                return FormatPolicy(has_footer=False, decodes_whole=False, has_field_ids=False)
            case FileFormat.AVRO:
                return FormatPolicy(has_footer=False, decodes_whole=True, has_field_ids=False)


@record
class BucketPolicy:
    """Who decides on the bucket of a row, and when."""

    is_fixed: bool
    """The hash of the bucket key, modulo a number."""
    has_hash_index: bool
    """An index of hashes per bucket; new keys fill bucket by bucket."""
    crosses_partitions: bool
    """Wherever the key is by now, in whatever partition."""
    is_postponed: bool
    """Rows wait, and a compaction gives a partition its number of buckets."""
    is_unaware: bool
    """All rows share one bucket: there is no key."""

    @property
    def assigns_keys(self) -> bool:
        """Whether a key keeps the bucket that was assigned to it."""
        return self.has_hash_index or self.crosses_partitions

    @property
    def has_bucket_count(self) -> bool:
        """Whether a partition has a number of buckets that can be changed."""
        return self.is_fixed or self.is_postponed

    @property
    def routes_by_hash(self) -> bool:
        """Whether the bucket follows from the row alone."""
        return self.is_fixed or self.is_unaware


class BucketMode(Enum):
    """How rows find their bucket."""

    FIXED = "fixed"
    DYNAMIC = "dynamic"
    CROSS_PARTITION = "cross-partition"
    """Dynamic, and a key has one row in all partitions: it lacks some partition columns."""
    POSTPONE = "postpone"
    UNAWARE = "unaware"

    @cached_property
    def policy(self) -> BucketPolicy:
        """The properties of the mode."""
        fixed, index, crosses, postponed, unaware = False, False, False, False, False
        match self:
            case BucketMode.FIXED:
                fixed = True
            case BucketMode.DYNAMIC:
                index = True
            case BucketMode.CROSS_PARTITION:
                crosses = True
            case BucketMode.POSTPONE:
                postponed = True
            case BucketMode.UNAWARE:
                unaware = True
        return BucketPolicy(
            is_fixed=fixed,
            has_hash_index=index,
            crosses_partitions=crosses,
            is_postponed=postponed,
            is_unaware=unaware,
        )


class ExternalAccess(Enum):
    """Which access an unsupported option prevents."""

    READ = "read"
    WRITE = "write"
