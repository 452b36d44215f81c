"""Every table option, declared once: Paimon's names and defaults, and which values are supported.

Read as `options[core_options.TARGET_FILE_SIZE]`. docs/options.md is generated from here.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from lsm_engine.base.units import parse_bytes, parse_millis
from lsm_engine.options.modes import (
    BloomFilterType,
    ChangelogProducer,
    ExternalAccess,
    FileFormat,
    IndexType,
    LookupCompact,
    LookupFileType,
    MergeEngine,
    SortOrder,
)
from lsm_engine.options.option import (
    FieldOption,
    Option,
    at_least,
    between,
    bounded_or_unlimited,
    fraction,
    names,
    one_of,
    optional,
    parse_bool,
    parse_lag,
    per_level,
    single_name,
)

READ = ExternalAccess.READ
NO_NAMES: tuple[str, ...] = ()
METADATA_DIRECTORIES = (
    "schema", "snapshot", "changelog", "manifest", "index", "statistics", "tag", "branch",
    "consumer", "trash", "verified",
)  # fmt: skip
"""Directories below a table's that hold no data files."""


def _is(*values: object) -> Any:
    return lambda value: value in values


def _data_directory(path: str) -> str:
    parts = path.rstrip("/").split("/")
    # Iceberg metadata lies in the last one.
    if parts[0] in (*METADATA_DIRECTORIES, "metadata") or any(
        part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts
    ):
        raise ValueError(
            "it names a directory below the table's that holds no metadata, as data/files"
        )
    return "/".join(parts)


def _never(_: object) -> bool:
    return False


# --- the table -----------------------------------------------------------------------------------

BUCKET = Option(
    key="bucket", parse=at_least(-2), default=-1, immutable=True,
    doc="Buckets per partition. Above 0: fixed, rows are routed by a hash of `bucket-key`. -1: dynamic for primary-key tables, unaware for append tables. -2: postponed.",
)  # fmt: skip
BUCKET_KEY = Option(
    key="bucket-key", parse=names, default=NO_NAMES, immutable=True,
    doc="Columns whose hash chooses the bucket. Default: the primary key without partition columns.",
)  # fmt: skip
ROW_TRACKING_ENABLED = Option(
    key="row-tracking.enabled", parse=parse_bool, default=False, immutable=True,
    doc="Every row of an append table has an id that compactions keep: the columns `_ROW_ID` and `_SEQUENCE_NUMBER` of a scan, and of the system table `row_tracking`. Needs `bucket` = -1.",
)  # fmt: skip
DATA_EVOLUTION_ENABLED = Option(
    key="data-evolution.enabled", parse=parse_bool, default=False, immutable=True,
    doc="Columns of rows that have ids may lie in files of their own, joined by row id on read. Needs `row-tracking.enabled`; does not go with `deletion-vectors.enabled`.",
)  # fmt: skip
PRIMARY_KEY = Option(
    key="primary-key", parse=names, default=NO_NAMES, immutable=True,
    doc="The primary key, for writers that can only pass options; kept in the schema, not here.",
)  # fmt: skip
CHAR_KEYS_PADDED = Option(
    key="char-keys.padded", parse=parse_bool, default=False,
    doc="Every CHAR(n) in a key column (of the primary key, the bucket key, the partition) is stored with blanks up to n. A new table has it. Without it shorter keys are refused, because a key with its blanks and one without are two rows; to set it looks at all keys once. No option of Java's, which ignores it.",
)  # fmt: skip
PRIMARY_KEY_NULLABLE = Option(
    key="primary-key.nullable", parse=parse_bool, default=False, immutable=True,
    supported=_never, guards=READ, doc="Key columns may hold nulls.",
)  # fmt: skip
PK_CLUSTERING_OVERRIDE = Option(
    key="pk-clustering-override", parse=parse_bool, default=False, immutable=True,
    supported=_never, guards=READ, doc="Files of a primary-key table are sorted by other columns than the key.",
)  # fmt: skip
CHAIN_TABLE_ENABLED = Option(
    key="chain-table.enabled", parse=parse_bool, default=False, immutable=True,
    supported=_never, guards=READ, doc="The table is read as a chain of branches.",
)  # fmt: skip
DATA_FILE_PATH_DIRECTORY = Option(
    key="data-file.path-directory", parse=optional(_data_directory), default=None, immutable=True,
    default_text="the table's directory",
    doc="Partitions and buckets lie in this directory below the table's, such as `data` or `data/files`.",
)  # fmt: skip
DATA_FILE_EXTERNAL_PATHS = Option(
    key="data-file.external-paths", parse=optional(str), default=None,
    supported=_never, doc="New data files are put outside the table; readers find them there.",
)  # fmt: skip
BUCKET_FUNCTION_TYPE = Option(
    key="bucket-function.type", parse=one_of(("default", "mod", "hive")), default="default",
    immutable=True, supported=_is("default"), doc="The hash that routes rows to buckets.",
)  # fmt: skip
MERGE_ENGINE = Option(
    key="merge-engine", parse=one_of(MergeEngine), default=MergeEngine.DEDUPLICATE, immutable=True,
    guards=READ, doc="What several rows of one key become.",
)  # fmt: skip
SEQUENCE_FIELD = Option(
    key="sequence.field", parse=names, default=NO_NAMES, immutable=True,
    doc="Columns that decide which row of a key is newest, before the order of arrival. Nulls are oldest.",
)  # fmt: skip
SEQUENCE_FIELD_SORT_ORDER = Option(
    key="sequence.field.sort-order", parse=one_of(SortOrder), default=SortOrder.ASCENDING,
    immutable=True, doc="Whether the greater or the smaller sequence value is newer.",
)  # fmt: skip
SEQUENCE_SNAPSHOT_ORDERING = Option(
    key="sequence.snapshot-ordering", parse=parse_bool, default=False, immutable=True, guards=READ,
    doc="Of two rows of a key the one of the later snapshot is newer, whatever numbers their writers gave them. Needs `write-only`, and a compaction by a dedicated job.",
)  # fmt: skip
IGNORE_DELETE = Option(
    key="ignore-delete", parse=parse_bool, default=False, guards=READ,
    aliases=("partial-update.ignore-delete", "first-row.ignore-delete", "deduplicate.ignore-delete"),
    doc="Drop -U and -D rows instead of letting them take their key away.",
)  # fmt: skip
IGNORE_UPDATE_BEFORE = Option(
    key="ignore-update-before", parse=parse_bool, default=False,
    doc="Writers drop -U rows.",
)  # fmt: skip
ROWKIND_FIELD = Option(
    key="rowkind.field", parse=optional(str), default=None, immutable=True,
    doc="A column that holds +I, -U, +U or -D for each row.",
)  # fmt: skip
CHANGELOG_PRODUCER = Option(
    key="changelog-producer", parse=one_of(ChangelogProducer), default=ChangelogProducer.NONE,
    doc="How the table's change feed is made.",
)  # fmt: skip
CHANGELOG_ROW_DEDUPLICATE = Option(
    key="changelog-producer.row-deduplicate", parse=parse_bool, default=False,
    doc="Leave pairs of -U and +U that carry equal rows out of the changelog.",
)  # fmt: skip
CHANGELOG_ROW_DEDUPLICATE_IGNORE_FIELDS = Option(
    key="changelog-producer.row-deduplicate-ignore-fields", parse=names, default=NO_NAMES,
    doc="Columns that row-deduplicate does not compare.",
)  # fmt: skip
DELETE_FORCE_PRODUCE_CHANGELOG = Option(
    key="delete.force-produce-changelog", parse=parse_bool, default=False,
    doc="Accepted and not needed: a delete writes rows of its own, which the changelog always sees.",
)  # fmt: skip
DELETION_VECTORS_ENABLED = Option(
    key="deletion-vectors.enabled", parse=parse_bool, default=False, immutable=True,
    doc="Mark replaced rows in bitmaps while compacting, so that reads need no merge. A table without a key can get it later too; rows can be deleted from then on.",
)  # fmt: skip
DELETION_VECTORS_BITMAP64 = Option(
    key="deletion-vectors.bitmap64", parse=parse_bool, default=False,
    doc="Write deletion vectors as 64-bit bitmaps, which Java 0.9 and pypaimon cannot read.",
)  # fmt: skip
DELETION_VECTORS_MERGE_ON_READ = Option(
    key="deletion-vectors.merge-on-read", parse=parse_bool, default=False,
    doc="Readers of a table with deletion vectors see level 0 as well, and merge it.",
)  # fmt: skip
DELETION_VECTORS_MODIFIABLE = Option(
    key="deletion-vectors.modifiable", parse=parse_bool, default=False, supported=_never,
    doc="Allow `deletion-vectors.enabled` to change on a table with data.",
)  # fmt: skip
DELETION_VECTOR_INDEX_FILE_TARGET_SIZE = Option(
    key="deletion-vector.index-file.target-size", parse=parse_bytes, default=2 << 20,
    default_text="2 mb",
    doc="Size of an index file of an append table. Buckets with a primary key have one file each.",
)  # fmt: skip
RECORD_LEVEL_EXPIRE_TIME = Option(
    key="record-level.expire-time", parse=optional(parse_millis), default=None,
    doc="Rows older than this are left out when they are compacted; readers see them until then.",
)  # fmt: skip
RECORD_LEVEL_TIME_FIELD = Option(
    key="record-level.time-field", parse=optional(str), default=None,
    doc="The column that holds the time of a row: INT in seconds, BIGINT in seconds or milliseconds, TIMESTAMP. Rows without a time stay.",
)  # fmt: skip
PARTIAL_UPDATE_REMOVE_ON_DELETE = Option(
    key="partial-update.remove-record-on-delete", parse=parse_bool, default=False, guards=READ,
    doc="A -D row removes its key from a partial-update table.",
)  # fmt: skip
PARTIAL_UPDATE_REMOVE_ON_GROUP = Option(
    key="partial-update.remove-record-on-sequence-group", parse=names, default=NO_NAMES,
    guards=READ, doc="Sequence groups whose -D row removes the key.",
)  # fmt: skip
AGGREGATION_REMOVE_ON_DELETE = Option(
    key="aggregation.remove-record-on-delete", parse=parse_bool, default=False, guards=READ,
    doc="A -D row removes its key from an aggregation table.",
)  # fmt: skip
DEFAULT_AGGREGATE_FUNCTION = Option(
    key="fields.default-aggregate-function", parse=optional(str), default=None, guards=READ,
    doc="The aggregate function of columns that name none.",
)  # fmt: skip

# --- partitions ----------------------------------------------------------------------------------

PARTITION_DEFAULT_NAME = Option(
    key="partition.default-name", parse=str, default="__DEFAULT_PARTITION__", immutable=True,
    doc="Directory name of a partition value that is null or blank.",
)  # fmt: skip
PARTITION_LEGACY_NAME = Option(
    key="partition.legacy-name", parse=parse_bool, default=True, immutable=True,
    doc="Name partition directories by the internal value (a date as its day number).",
)  # fmt: skip
DYNAMIC_PARTITION_OVERWRITE = Option(
    key="dynamic-partition-overwrite", parse=parse_bool, default=True,
    doc="An overwrite without a partition replaces only the partitions that its rows touch.",
)  # fmt: skip

# --- buckets -------------------------------------------------------------------------------------

DYNAMIC_BUCKET_TARGET_ROW_NUM = Option(
    key="dynamic-bucket.target-row-num", parse=at_least(1), default=2_000_000,
    doc="Keys in a dynamic bucket before a new one is opened.",
)  # fmt: skip
DYNAMIC_BUCKET_INITIAL_BUCKETS = Option(
    key="dynamic-bucket.initial-buckets", parse=optional(at_least(1)), default=None,
    doc="Dynamic buckets that the first rows of a partition spread over, by the hash of their key. Default: one.",
)  # fmt: skip
DYNAMIC_BUCKET_ASSIGNER_PARALLELISM = Option(
    key="dynamic-bucket.assigner-parallelism", parse=optional(at_least(1)), default=None,
    doc="Buckets of a partition that are filled side by side, at most `initial-buckets` of them where that is set; bucket b takes keys whose hash has the same remainder.",
)  # fmt: skip
DYNAMIC_BUCKET_MAX_BUCKETS = Option(
    key="dynamic-bucket.max-buckets", parse=bounded_or_unlimited, default=-1,
    doc="Dynamic buckets of a partition at most; once all are full, new keys spread over them. -1: no limit.",
)  # fmt: skip
POSTPONE_BATCH_WRITE_FIXED_BUCKET = Option(
    key="postpone.batch-write-fixed-bucket", parse=parse_bool, default=True,
    doc="Writes to a table with `bucket` = -2 go to real buckets at once; false: they wait, unseen, until a compaction gives them buckets.",
)  # fmt: skip
POSTPONE_DEFAULT_BUCKET_NUM = Option(
    key="postpone.default-bucket-num", parse=at_least(1), default=1,
    doc="Buckets of a new partition of a table with `bucket` = -2: where it is given, of all of them, otherwise of those to which a batch writes at once.",
)  # fmt: skip
POSTPONE_TARGET_SIZE_PER_BUCKET = Option(
    key="postpone.target-size-per-bucket", parse=parse_bytes, default=1 << 30, default_text="1 gb",
    doc="A compaction chooses the buckets of a new partition by how many bytes wait for them: enough for each to have at most this, a power of two, at most 2048. Where it is given, rows of a batch for a new partition wait, too, in a commit of their own. `postpone.default-bucket-num` comes first.",
)  # fmt: skip
POSTPONE_MERGE_ON_READ = Option(
    key="postpone.merge-on-read", parse=parse_bool, default=False,
    doc="Scans of a table with `bucket` = -2 merge rows that wait for a bucket, as if they had it; streams and changes begin with those in buckets, and lookups by key are refused.",
)  # fmt: skip
CROSS_PARTITION_UPSERT_INDEX_TTL = Option(
    key="cross-partition-upsert.index-ttl", parse=optional(parse_millis), default=None,
    doc="A key is not looked for in buckets of other partitions whose newest file is older than this: its row there remains, beside the new one. Default: no row is forgotten.",
)  # fmt: skip
CROSS_PARTITION_UPSERT_BOOTSTRAP_PARALLELISM = Option(
    key="cross-partition-upsert.bootstrap-parallelism", parse=at_least(1), default=10,
    doc="Tasks that other clients read existing keys with; ours look only at files that may hold incoming keys.",
)  # fmt: skip
LOCAL_MERGE_BUFFER_SIZE = Option(
    key="local-merge-buffer-size", parse=optional(parse_bytes), default=None,
    doc="Spark tasks gather so many bytes of rows and merge those of one key before they shuffle them to their bucket. What is written is the same; without Spark nothing is shuffled. Default: rows are shuffled as they come.",
)  # fmt: skip
COMPACTION_MIN_FILE_NUM = Option(
    key="compaction.min.file-num", parse=at_least(2), default=5,
    doc="Small files of an append table that make a compaction due.",
)  # fmt: skip

# --- compaction ----------------------------------------------------------------------------------

NUM_SORTED_RUN_COMPACTION_TRIGGER = Option(
    key="num-sorted-run.compaction-trigger", parse=at_least(1), default=5,
    doc="Sorted runs in a bucket that make a compaction due.",
)  # fmt: skip
NUM_SORTED_RUN_STOP_TRIGGER = Option(
    key="num-sorted-run.stop-trigger", parse=optional(at_least(1)), default=None,
    default_text="compaction trigger + 3",
    doc="Sorted runs in a bucket above which a writer does not leave a compaction to others.",
)  # fmt: skip
NUM_LEVELS = Option(
    key="num-levels", parse=optional(at_least(2)), default=None,
    default_text="compaction trigger + 1", doc="Levels of each LSM tree, level 0 included.",
)  # fmt: skip
COMPACTION_MAX_SIZE_AMPLIFICATION_PERCENT = Option(
    key="compaction.max-size-amplification-percent", parse=at_least(0), default=200,
    doc="Extra bytes allowed above the oldest run, in percent of it, before everything is merged.",
)  # fmt: skip
COMPACTION_SIZE_RATIO = Option(
    key="compaction.size-ratio", parse=at_least(0), default=1,
    doc="Percent by which the next run may be larger and still join a compaction.",
)  # fmt: skip
COMPACTION_OPTIMIZATION_INTERVAL = Option(
    key="compaction.optimization-interval", parse=optional(parse_millis), default=None,
    doc="Compact fully at least this often.",
)  # fmt: skip
COMPACTION_TOTAL_SIZE_THRESHOLD = Option(
    key="compaction.total-size-threshold", parse=optional(parse_bytes), default=None,
    doc="Compact fully whenever the bucket is smaller than this.",
)  # fmt: skip
COMPACTION_INCREMENTAL_SIZE_THRESHOLD = Option(
    key="compaction.incremental-size-threshold", parse=optional(parse_bytes), default=None,
    doc="Compact fully once the runs above the last level exceed this.",
)  # fmt: skip
COMPACTION_FORCE_UP_LEVEL_0 = Option(
    key="compaction.force-up-level-0", parse=parse_bool, default=False,
    doc="Every compaction takes all of level 0.",
)  # fmt: skip
COMPACTION_FORCE_REWRITE_ALL_FILES = Option(
    key="compaction.force-rewrite-all-files", parse=parse_bool, default=False,
    doc="Each full compaction writes every file anew, also where the last level is all there is.",
)  # fmt: skip
LOOKUP_COMPACT = Option(
    key="lookup-compact", parse=one_of(LookupCompact), default=LookupCompact.RADICAL,
    doc="Where level 0 has to move up (lookup changelog, first-row, deletion vectors): with every commit, or gently, with every so many-th.",
)  # fmt: skip
LOOKUP_COMPACT_MAX_INTERVAL = Option(
    key="lookup-compact.max-interval", parse=optional(at_least(1)), default=None,
    default_text="2 x compaction trigger",
    doc="Every how many-th pick that finds nothing else to do takes level 0, where `lookup-compact` is gentle; not below the trigger.",
)  # fmt: skip
LOOKUP_WAIT = Option(
    key="lookup-wait", parse=parse_bool, default=True,
    aliases=("changelog-producer.lookup-wait",),
    doc="Where rows are read, or their changelog is made, only after a compaction of level 0 (first-row, deletion vectors, lookup changelog), a write that loses it to others tries again until it stands, for as long as `commit.timeout` allows and others commit. false: it tries once. What it returns has `visible`.",
)  # fmt: skip
COMPACTION_OFFPEAK_START_HOUR = Option(
    key="compaction.offpeak.start.hour", parse=between(-1, 23), default=-1,
    doc="Hour of the day at which the off-peak size ratio begins; -1: none.",
)  # fmt: skip
COMPACTION_OFFPEAK_END_HOUR = Option(
    key="compaction.offpeak.end.hour", parse=between(-1, 23), default=-1,
    doc="Hour of the day at which the off-peak size ratio ends; -1: none.",
)  # fmt: skip
COMPACTION_OFFPEAK_RATIO = Option(
    key="compaction.offpeak-ratio", parse=at_least(0), default=0,
    doc="Percent added to the size ratio in off-peak hours.",
)  # fmt: skip
FULL_COMPACTION_DELTA_COMMITS = Option(
    key="full-compaction.delta-commits", parse=optional(at_least(1)), default=None,
    doc="Compact fully after this many commits; 1 is copy on write.",
)  # fmt: skip
COMMIT_FORCE_COMPACT = Option(
    key="commit.force-compact", parse=parse_bool, default=False,
    doc="Accepted and not needed: a write compacts what is due before it returns.",
)  # fmt: skip
WRITE_ONLY = Option(
    key="write-only", parse=parse_bool, default=False, aliases=("write.compaction-skip",),
    doc="Writers neither compact nor expire; a dedicated job does.",
)  # fmt: skip

# --- files ---------------------------------------------------------------------------------------

FILE_FORMAT = Option(
    key="file.format", parse=one_of(FileFormat), default=FileFormat.PARQUET,
    doc="Format of new data files. Files are read by their extension, so formats may be mixed.",
)  # fmt: skip
FILE_FORMAT_PER_LEVEL: Option[tuple[tuple[int, FileFormat], ...]] = Option(
    key="file.format.per.level", parse=per_level(one_of(FileFormat)), default=(),
    doc="Format of new data files of some levels, such as `0:avro,5:parquet`.",
)  # fmt: skip
_COMPRESSIONS = one_of(("zstd", "lz4", "gzip", "snappy", "none"))
FILE_COMPRESSION = Option(
    key="file.compression", parse=_COMPRESSIONS, default="zstd",
    doc="Compression of new data files. Avro knows zstd, gzip and none. Parquet leaves it out for row "
    "groups of less than 256 bytes a column, and by default takes Snappy below 4 KB a column.",
)  # fmt: skip
FILE_COMPRESSION_PER_LEVEL: Option[tuple[tuple[int, str], ...]] = Option(
    key="file.compression.per.level", parse=per_level(_COMPRESSIONS), default=(),
    doc="Compression of new data files of some levels, such as `0:lz4,5:zstd`.",
)  # fmt: skip
FILE_COMPRESSION_ZSTD_LEVEL = Option(
    key="file.compression.zstd-level", parse=at_least(1), default=1,
    doc="Level of zstd compression: higher is smaller and slower.",
)  # fmt: skip
FILE_BLOCK_SIZE = Option(
    key="file.block-size", parse=optional(parse_bytes), default=None, default_text="128 mb",
    doc="Size of a row group in memory. Small row groups let merges hold less of each run.",
)  # fmt: skip
TARGET_FILE_SIZE = Option(
    key="target-file-size", parse=optional(parse_bytes), default=None,
    default_text="128 mb with a primary key, 256 mb without",
    doc="Roll to a new data file at about this size.",
)  # fmt: skip
CHANGELOG_FILE_FORMAT = Option(
    key="changelog-file.format", parse=optional(one_of(FileFormat)), default=None,
    default_text="as data files", doc="Format of new changelog files.",
)  # fmt: skip
CHANGELOG_FILE_COMPRESSION = Option(
    key="changelog-file.compression", parse=optional(_COMPRESSIONS), default=None,
    default_text="as data files", doc="Compression of new changelog files.",
)  # fmt: skip
CHANGELOG_FILE_STATS_MODE = Option(
    key="changelog-file.stats-mode", parse=optional(str), default=None,
    default_text="as data files",
    doc="Column statistics of changelog files in manifests, as `metadata.stats-mode`.",
)  # fmt: skip
STATS_MODE = Option(
    key="metadata.stats-mode", parse=str, default="truncate(16)",
    doc="Column statistics in manifests: none, counts, truncate(n) or full.",
)  # fmt: skip
STATS_DENSE_STORE = Option(
    key="metadata.stats-dense-store", parse=parse_bool, default=True,
    doc="Accepted and not needed: statistics are always written for every column, as every client can read those.",
)  # fmt: skip
DATA_FILE_THIN_MODE = Option(
    key="data-file.thin-mode", parse=parse_bool, default=False,
    doc="Leave the second copy of the key (`_KEY_` columns) out of new files. Java 0.9 cannot read those.",
)  # fmt: skip
PAGE_CHECKSUM = Option(
    key="parquet.page-checksum", parse=parse_bool, default=True,
    doc="Write a checksum with every Parquet page, and verify it when reading.",
)  # fmt: skip

# --- writing -------------------------------------------------------------------------------------

WRITE_BUFFER_SIZE = Option(
    key="write-buffer-size", parse=parse_bytes, default=256 << 20,
    doc="Memory for buffered rows of one write; beyond it the buffer spills or becomes a file.",
)  # fmt: skip
WRITE_BUFFER_SPILLABLE = Option(
    key="write-buffer-spillable", parse=parse_bool, default=True,
    doc="Spill a full write buffer to local disk, so that one write makes one run; otherwise each full buffer becomes a run.",
)  # fmt: skip
SORT_ENGINE = Option(
    key="sort-engine", parse=one_of(("loser-tree", "min-heap")), default="loser-tree",
    doc="Accepted and not needed: runs are merged two by two, in compiled loops.",
)  # fmt: skip
SORT_SPILL_THRESHOLD = Option(
    key="sort-spill-threshold", parse=optional(at_least(2)), default=None,
    default_text="stop trigger + 1", doc="Runs that one merge pass reads at most.",
)  # fmt: skip
SORT_SPILL_BUFFER_SIZE = Option(
    key="sort-spill-buffer-size", parse=parse_bytes, default=64 << 20,
    doc="Memory for the slices that one merge holds at a time.",
)  # fmt: skip

# --- metadata and commit -------------------------------------------------------------------------

MANIFEST_TARGET_FILE_SIZE = Option(
    key="manifest.target-file-size", parse=parse_bytes, default=8 << 20,
    doc="Roll to a new manifest at about this size.",
)  # fmt: skip
MANIFEST_MERGE_MIN_COUNT = Option(
    key="manifest.merge-min-count", parse=at_least(2), default=30,
    doc="Small manifests that are merged into one by a commit.",
)  # fmt: skip
MANIFEST_CACHE_MAX_DISK_SIZE = Option(
    key="manifest.cache-max-disk-size", parse=parse_bytes, default=512 << 20, default_text="512 mb",
    doc="Bytes of local disk for decoded manifests of 1,024 entries and more, which all processes of a user share, in the directory for temporary files; 0: none are stored. Not an option of other clients.",
)  # fmt: skip
MANIFEST_FULL_COMPACTION_SIZE = Option(
    key="manifest.full-compaction-threshold-size", parse=parse_bytes, default=16 << 20,
    doc="Bytes of changed manifests that make a commit rewrite them without their deleted entries.",
)  # fmt: skip
MANIFEST_COMPRESSION = Option(
    key="manifest.compression", parse=one_of(("zstd", "zstandard", "deflate", "null", "none")),
    default="zstd", doc="Compression of manifests and manifest lists.",
)  # fmt: skip
ICEBERG_COMPATIBILITY_ENABLED = Option(
    key="iceberg-compatibility.enabled", parse=parse_bool, default=False,
    doc="Readers of Iceberg see the rows of a scan, at each commit. Sets `metadata.iceberg.storage`, and `deletion-vectors.enabled` of a table with a key, if they are not given; options that contradict it are refused. No option of Java's, which reads those.",
)  # fmt: skip
METADATA_ICEBERG_STORAGE = Option(
    key="metadata.iceberg.storage",
    parse=one_of(("disabled", "table-location", "hadoop-catalog", "hive-catalog", "rest-catalog")),
    default="disabled", supported=_is("table-location", "hadoop-catalog"),
    doc="Whether each commit writes Iceberg metadata of the same data files, and where: in `metadata` of the table's directory, or in `iceberg/<database>/<table>/metadata` of the warehouse (docs/iceberg.md).",
)  # fmt: skip
METADATA_ICEBERG_STORAGE_LOCATION = Option(
    key="metadata.iceberg.storage-location", parse=optional(one_of(("table-location", "catalog-location"))),
    default=None, default_text="by `metadata.iceberg.storage`",
    doc="The folder of the Iceberg metadata, where it is not to be that of `metadata.iceberg.storage`: `metadata` of the table's directory, or `iceberg/<database>/<table>/metadata` of the warehouse.",
)  # fmt: skip
METADATA_ICEBERG_DATABASE = Option(
    key="metadata.iceberg.database", parse=optional(single_name), default=None, default_text="the table's",
    doc="The database by which readers of Iceberg's JDBC catalog find the table. The folder of the metadata stays.",
)  # fmt: skip
METADATA_ICEBERG_TABLE = Option(
    key="metadata.iceberg.table", parse=optional(single_name), default=None, default_text="the table's",
    doc="The name by which readers of Iceberg's JDBC catalog find the table. The folder of the metadata stays.",
)  # fmt: skip
METADATA_ICEBERG_FORMAT_VERSION = Option(
    key="metadata.iceberg.format-version", parse=optional(between(2, 3)), default=None, default_text="3 with deletion vectors, else 2",
    doc="Format version of the Iceberg metadata. With deletion vectors 3 has Puffin files, and 2 position delete files.",
)  # fmt: skip
METADATA_ICEBERG_MANIFEST_COMPRESSION = Option(
    key="metadata.iceberg.manifest-compression", parse=one_of(("gzip", "deflate", "none", "snappy", "zstd")), default="gzip",
    supported=_is("gzip", "deflate", "none"), doc="Compression of Iceberg manifests and manifest lists.",
)  # fmt: skip
METADATA_ICEBERG_COMPACTION_MIN_FILE_NUM = Option(
    key="metadata.iceberg.compaction.min.file-num", parse=at_least(2), default=10,
    doc="Small Iceberg manifests from which on they are merged, if they fill one together.",
)  # fmt: skip
METADATA_ICEBERG_COMPACTION_MAX_FILE_NUM = Option(
    key="metadata.iceberg.compaction.max.file-num", parse=at_least(2), default=50,
    doc="Small Iceberg manifests from which on they are merged in any case.",
)  # fmt: skip
METADATA_ICEBERG_DELETE_AFTER_COMMIT = Option(
    key="metadata.iceberg.delete-after-commit.enabled", parse=parse_bool, default=True,
    doc="Delete versions of the Iceberg metadata beyond `metadata.iceberg.previous-versions-max`, and with expiry the files that only they name.",
)  # fmt: skip
METADATA_ICEBERG_MAX_LAG = Option(
    key="metadata.iceberg.max-lag", parse=optional(parse_lag), default=None,
    doc="How far the Iceberg metadata of a table with a key and without deletion vectors may be behind: a number of commits such as `10`, or a duration such as `1 h`. Beyond that a compaction, of a writer or of upkeep, is a full one. Not an option of other clients.",
)  # fmt: skip
METADATA_ICEBERG_PREVIOUS_VERSIONS_MAX = Option(
    key="metadata.iceberg.previous-versions-max", parse=at_least(0), default=10,
    doc="Older versions of the Iceberg metadata that are kept, for readers that have opened one. Java keeps none by default.",
)  # fmt: skip
COMMIT_MAX_RETRIES = Option(
    key="commit.max-retries", parse=at_least(0), default=10,
    doc="If set: lost races for a snapshot id that a commit survives; else only `commit.timeout` ends it. A write that has to look at rows again does so this often.",
)  # fmt: skip
COMMIT_MIN_RETRY_WAIT = Option(
    key="commit.min-retry-wait", parse=parse_millis, default=10, default_text="10 ms",
    doc="Longest wait after the first lost race for a snapshot id, and down to a quarter of that after later ones. Each wait is a random part of it.",
)  # fmt: skip
COMMIT_MAX_RETRY_WAIT = Option(
    key="commit.max-retry-wait", parse=parse_millis, default=10_000, default_text="10 s",
    doc="Longest wait between commit attempts.",
)  # fmt: skip
COMMIT_TIMEOUT = Option(
    key="commit.timeout", parse=parse_millis, default=600_000, default_text="10 min",
    doc="Give a commit up after this long of losing races to other writers; nothing of it is visible then. Also how long a write waits for its lookup compaction (`lookup-wait`): past that its rows stay committed, and are not visible yet.",
)  # fmt: skip
COMMIT_FORCE_CREATE_SNAPSHOT = Option(
    key="commit.force-create-snapshot", parse=parse_bool, default=False,
    doc="Make a snapshot even when a commit changes nothing.",
)  # fmt: skip
SNAPSHOT_IGNORE_EMPTY_COMMIT = Option(
    key="snapshot.ignore-empty-commit", parse=optional(parse_bool), default=None,
    default_text="true", doc="Make no snapshot when a commit changes nothing.",
)  # fmt: skip
COMMIT_IDENTIFIER_NUM_RETAINED = Option(
    key="commit-identifier.num-retained", parse=at_least(1), default=1000,
    doc="Commit users whose last commit identifier is kept, the most recent ones. Of the others it is known that they have committed: their next numbered commit is refused, with what to do.",
)  # fmt: skip
COMMIT_IDENTIFIER_TIME_RETAINED = Option(
    key="commit-identifier.time-retained", parse=parse_millis, default=31_536_000_000, default_text="365 d",
    doc="How long the last commit identifier of a commit user is kept at least after its last numbered commit.",
)  # fmt: skip
COMMIT_FSYNC = Option(
    key="commit.fsync", parse=parse_bool, default=True,
    doc="Force files to disk before a commit becomes visible, so that it survives a power cut.",
)  # fmt: skip
WRITE_COUNT_CHANGES = Option(
    key="write.count-changes", parse=parse_bool, default=False,
    doc="Record in each snapshot's properties how many keys a write inserted, updated and deleted (`lsm.rows.*`), by whichever way of writing, Spark's data source included. A delete of keys that are not there then makes no snapshot, however many they are. Costs reading the key columns of the files that the rows may be in.",
)  # fmt: skip
WRITE_SKIP_UNCHANGED = Option(
    key="write.skip-unchanged", parse=parse_bool, default=False,
    doc="Leave out of an upsert or delete the buckets that it would not change; one that changes nothing makes no snapshot, so that nothing derived from the table becomes stale. Needs `merge-engine` = deduplicate. Rows are looked up until the first that differs, so that a load which changes nothing costs a lookup of each row. Streams that cannot be read twice, open writers and Spark's data source leave out all or nothing.",
)  # fmt: skip

# --- retention -----------------------------------------------------------------------------------

SNAPSHOT_NUM_RETAINED_MIN = Option(
    key="snapshot.num-retained.min", parse=at_least(1), default=10,
    doc="Snapshots that expiry never takes, whatever their age.",
)  # fmt: skip
SNAPSHOT_NUM_RETAINED_MAX = Option(
    key="snapshot.num-retained.max", parse=at_least(1), default=2_147_483_647,
    default_text="infinite", doc="Snapshots kept at most, whatever their age.",
)  # fmt: skip
SNAPSHOT_TIME_RETAINED = Option(
    key="snapshot.time-retained", parse=parse_millis, default=3_600_000, default_text="1 h",
    doc="A snapshot may go once its successor is older than this.",
)  # fmt: skip
SNAPSHOT_EXPIRE_LIMIT = Option(
    key="snapshot.expire.limit", parse=at_least(1), default=50,
    doc="Snapshots that one expiry takes at most.",
)  # fmt: skip
SNAPSHOT_EXPIRE_EXECUTION_MODE = Option(
    key="snapshot.expire.execution-mode", parse=one_of(("sync", "async")), default="sync",
    doc="Accepted and not needed: writers never expire, `expire_snapshots` and the schedules do.",
)  # fmt: skip
SNAPSHOT_CLEAN_EMPTY_DIRECTORIES = Option(
    key="snapshot.clean-empty-directories", parse=parse_bool, default=False,
    aliases=("snapshot.expire.clean-empty-directories",),
    doc="Expiry also removes directories that it leaves empty.",
)  # fmt: skip
CHANGELOG_NUM_RETAINED_MIN = Option(
    key="changelog.num-retained.min", parse=optional(at_least(1)), default=None,
    default_text="as snapshots", doc="Changelogs, those of snapshots counted, that expiry never takes.",
)  # fmt: skip
CHANGELOG_NUM_RETAINED_MAX = Option(
    key="changelog.num-retained.max", parse=optional(at_least(1)), default=None,
    default_text="as snapshots",
    doc="Changelogs kept at most, those of snapshots counted. More than snapshots: changelogs outlive them.",
)  # fmt: skip
CHANGELOG_TIME_RETAINED = Option(
    key="changelog.time-retained", parse=optional(parse_millis), default=None,
    default_text="as snapshots",
    doc="Age up to which changelogs are kept. Longer than that of snapshots: changelogs outlive them.",
)  # fmt: skip
CONSUMER_ID = Option(
    key="consumer-id", parse=optional(str), default=None,
    doc="Name under which a reader of changes remembers how far it has got. Of one read, not of a table.",
)  # fmt: skip
CONSUMER_EXPIRATION_TIME = Option(
    key="consumer.expiration-time", parse=optional(parse_millis), default=None,
    doc="Consumers that have not moved for this long are forgotten by expiry.",
)  # fmt: skip
CONSUMER_MODE = Option(
    key="consumer.mode", parse=one_of(("exactly-once", "at-least-once")), default="exactly-once",
    doc="Accepted and not needed: ours moves on after what was read has been dealt with.",
)  # fmt: skip
CONSUMER_IGNORE_PROGRESS = Option(
    key="consumer.ignore-progress", parse=parse_bool, default=False,
    doc="Start where the read's own options name, not at the consumer's progress.",
)  # fmt: skip
CONSUMER_CHANGELOG_ONLY = Option(
    key="consumer.changelog-only", parse=parse_bool, default=False,
    doc="Consumers keep changelogs from expiring, and not snapshots.",
)  # fmt: skip
TAG_DEFAULT_TIME_RETAINED = Option(
    key="tag.default-time-retained", parse=optional(parse_millis), default=None,
    doc="Lifetime of tags that name none.",
)  # fmt: skip
TAG_TIME_EXPIRE_ENABLED = Option(
    key="tag.time-expire-enabled", parse=parse_bool, default=True,
    doc="`expire_snapshots` takes tags whose lifetime is over.",
)  # fmt: skip
TAG_AUTOMATIC_CREATION = Option(
    key="tag.automatic-creation", parse=one_of(("none", "process-time", "watermark", "batch")),
    default="none",
    doc="Commits create tags by themselves: for each period of their time or watermark that is over, or one a day (batch).",
)  # fmt: skip
TAG_CREATION_PERIOD = Option(
    key="tag.creation-period", parse=one_of(("daily", "hourly", "two-hours")), default="daily",
    doc="Period that one automatic tag stands for.",
)  # fmt: skip
TAG_CREATION_PERIOD_DURATION = Option(
    key="tag.creation-period-duration", parse=optional(parse_millis), default=None,
    doc="Period of any length, instead of `tag.creation-period`; such tags are named yyyyMMddHHmm.",
)  # fmt: skip
TAG_CREATION_DELAY = Option(
    key="tag.creation-delay", parse=parse_millis, default=0, default_text="0 ms",
    doc="Wait this long after a period for late rows, before it is tagged; shorter than the period.",
)  # fmt: skip
TAG_PERIOD_FORMATTER = Option(
    key="tag.period-formatter",
    parse=one_of(("with_dashes", "without_dashes", "without_dashes_and_spaces")),
    default="with_dashes", doc="How automatic tags spell their period: 2024-05-01, or 20240501.",
)  # fmt: skip
TAG_AUTOMATIC_COMPLETION = Option(
    key="tag.automatic-completion", parse=parse_bool, default=False,
    doc="Also tag the periods between the last automatic tag and now in which nothing was committed.",
)  # fmt: skip
TAG_NUM_RETAINED_MAX = Option(
    key="tag.num-retained-max", parse=optional(at_least(1)), default=None,
    doc="Automatic tags kept at most; the oldest go. Tags that people made are not counted.",
)  # fmt: skip
TAG_CREATE_SUCCESS_FILE = Option(
    key="tag.create-success-file", parse=parse_bool, default=False, supported=_never,
    doc="Write a success file beside each tag.",
)  # fmt: skip
TAG_BATCH_CUSTOMIZED_NAME = Option(
    key="tag.batch.customized-name", parse=optional(str), default=None,
    doc="Name of the tag that `tag.automatic-creation` = batch moves along. Default: batch-write-<day>.",
)  # fmt: skip
SINK_PROCESS_TIME_ZONE = Option(
    key="sink.process-time-zone", parse=optional(str), default=None,
    default_text="of this process", doc="Time zone in which process time is cut into periods.",
)  # fmt: skip
SINK_WATERMARK_TIME_ZONE = Option(
    key="sink.watermark-time-zone", parse=str, default="UTC",
    doc="Time zone in which watermarks are cut into periods.",
)  # fmt: skip
PARTITION_EXPIRATION_TIME = Option(
    key="partition.expiration-time", parse=optional(parse_millis), default=None,
    doc="`expire_partitions` drops partitions older than this.",
)  # fmt: skip
COMPACTION_SKIP_EXPIRED_PARTITIONS = Option(
    key="compaction.skip-expired-partitions", parse=parse_bool, default=False,
    doc="`compact` leaves out partitions that are older than `partition.expiration-time` by their values (`partition.expiration-strategy` = values-time), and nothing calls them due.",
)  # fmt: skip
PARTITION_EXPIRATION_CHECK_INTERVAL = Option(
    key="partition.expiration-check-interval", parse=parse_millis, default=3_600_000,
    default_text="1 h",
    doc="Accepted and not needed: writers never expire, `expire_partitions` does, when it is called.",
)  # fmt: skip
PARTITION_EXPIRATION_STRATEGY = Option(
    key="partition.expiration-strategy", parse=one_of(("values-time", "update-time")),
    default="values-time",
    doc="Whether a partition's age follows from its values (values-time) or from its newest file (update-time).",
)  # fmt: skip
PARTITION_EXPIRATION_MAX_NUM = Option(
    key="partition.expiration-max-num", parse=at_least(1), default=100,
    doc="Partitions that one expiry drops at most, the oldest first.",
)  # fmt: skip
PARTITION_EXPIRATION_BATCH_SIZE = Option(
    key="partition.expiration-batch-size", parse=optional(at_least(1)), default=None,
    doc="Accepted and not needed: all partitions of one expiry go in one commit.",
)  # fmt: skip
PARTITION_TIMESTAMP_FORMATTER = Option(
    key="partition.timestamp-formatter", parse=optional(str), default=None,
    default_text="yyyy-MM-dd HH:mm:ss, or yyyy-MM-dd",
    doc="How partition values spell a time. Letters y M d H m s, and text in quotes.",
)  # fmt: skip
PARTITION_TIMESTAMP_PATTERN = Option(
    key="partition.timestamp-pattern", parse=optional(str), default=None,
    default_text="the first partition column",
    doc="How partition columns make a time, such as `$year-$month-$day $hour:00:00`.",
)  # fmt: skip
MAINTENANCE_TRASH_RETAINED = Option(
    key="maintenance.trash-retained", parse=optional(parse_millis), default=None,
    doc="Ours, unknown to other clients: files that maintenance takes stay this long, and `undo_maintenance` gives them back. Default: no trash.",
)  # fmt: skip

# --- reading -------------------------------------------------------------------------------------

SCAN_SNAPSHOT_ID = Option(
    key="scan.snapshot-id", parse=optional(at_least(1)), default=None,
    doc="Read this snapshot. Of one read, not of a table: use `scan(snapshot_id=...)`.",
)  # fmt: skip
SCAN_MODE = Option(
    key="scan.mode",
    parse=optional(one_of((
        "default", "latest-full", "full", "latest", "compacted-full", "from-timestamp",
        "from-snapshot", "from-snapshot-full", "incremental",
    ))),
    default=None, supported=_never, aliases=("log.scan",),
    doc="Where a read starts. Of one read, not of a table: use `scan`, `changes` or `follow`.",
)  # fmt: skip
INCREMENTAL_BETWEEN = Option(
    key="incremental-between", parse=optional(str), default=None, supported=_never, guards=READ,
    doc="Two snapshots or tags, 'a,b'. Of one read, not of a table: use `changes(after=, upto=)`.",
)  # fmt: skip
INCREMENTAL_BETWEEN_TIMESTAMP = Option(
    key="incremental-between-timestamp", parse=optional(str), default=None, supported=_never, guards=READ,
    doc="Two times, 'a,b'. Of one read: use `changes(after_millis=, upto_millis=)`.",
)  # fmt: skip
INCREMENTAL_BETWEEN_SCAN_MODE = Option(
    key="incremental-between-scan-mode", parse=one_of(("auto", "delta", "changelog", "diff")),
    default="auto", supported=_never, doc="Of one read: use `changes(mode=...)`.",
)  # fmt: skip
STREAMING_READ_OVERWRITE = Option(
    key="streaming-read-overwrite", parse=parse_bool, default=False,
    doc="Readers of changes see what an overwrite did: the states before and after it, compared.",
)  # fmt: skip
SCAN_TAG_NAME = Option(
    key="scan.tag-name", parse=optional(str), default=None,
    doc="Read this tag. Of one read, not of a table: use `scan(tag=...)`.",
)  # fmt: skip
SCAN_TIMESTAMP_MILLIS = Option(
    key="scan.timestamp-millis", parse=optional(at_least(0)), default=None,
    aliases=("log.scan.timestamp-millis",),
    doc="Read the latest snapshot at or before this time. Use `scan(as_of_millis=...)`.",
)  # fmt: skip
SCAN_FALLBACK_BRANCH = Option(
    key="scan.fallback-branch", parse=optional(str), default=None,
    doc="Batch reads take partitions that are not here from this branch.",
)  # fmt: skip
SCAN_PLAN_AUTO_TAG_TIME_RETAINED = Option(
    key="scan.plan-auto-tag-for-read.time-retained", parse=optional(parse_millis), default=None,
    doc="Batch reads tag what they read, until they are done or for this time at most.",
)  # fmt: skip
SOURCE_SPLIT_TARGET_SIZE = Option(
    key="source.split.target-size", parse=parse_bytes, default=128 << 20,
    doc="Bytes that one split reads at about.",
)  # fmt: skip
SOURCE_SPLIT_OPEN_FILE_COST = Option(
    key="source.split.open-file-cost", parse=parse_bytes, default=4 << 20,
    doc="Bytes that opening a file counts for when splits are packed.",
)  # fmt: skip
PATH = Option(
    key="path", parse=optional(str), default=None,
    doc="Where the table lives; written by some clients, never followed by us.",
)  # fmt: skip
OWNER = Option(key="owner", parse=optional(str), default=None, doc="Who owns the table.")
TYPE = Option(
    key="type", parse=one_of(("table",)), default="table", guards=READ, doc="Kind of table.",
)  # fmt: skip

# --- lookup --------------------------------------------------------------------------------------

LOOKUP_LOCAL_FILE_TYPE = Option(
    key="lookup.local-file-type", parse=one_of(LookupFileType), default=LookupFileType.COLUMNAR,
    doc="What a data file becomes on local disk when keys are looked up in it: columnar (mapped Arrow columns, the fastest), sort (sorted blocks) or hash (one probe, one read). Tables with arrays, maps or structures always have columnar ones.",
)  # fmt: skip
LOOKUP_HASH_LOAD_FACTOR = Option(
    key="lookup.hash-load-factor", parse=fraction, default=0.75,
    doc="Share of the slots of a hash lookup file that are taken.",
)  # fmt: skip
LOOKUP_CACHE_FILE_RETENTION = Option(
    key="lookup.cache-file-retention", parse=parse_millis, default=3_600_000, default_text="1 h",
    doc="A lookup file goes when it has not been asked for this long.",
)  # fmt: skip
LOOKUP_CACHE_MAX_DISK_SIZE = Option(
    key="lookup.cache-max-disk-size", parse=optional(parse_bytes), default=None,
    default_text="unlimited", doc="Bytes of local disk for lookup files.",
)  # fmt: skip
LOOKUP_CACHE_MAX_MEMORY_SIZE = Option(
    key="lookup.cache-max-memory-size", parse=parse_bytes, default=256 << 20,
    doc="Memory for decoded blocks of sort lookup files. The other kinds are mapped, not held.",
)  # fmt: skip
LOOKUP_CACHE_HIGH_PRIORITY_POOL_RATIO = Option(
    key="lookup.cache.high-priority-pool-ratio", parse=fraction, default=0.25,
    doc="Share of that memory kept for indexes and bloom filters.",
)  # fmt: skip
LOOKUP_CACHE_BLOOM_FILTER_ENABLED = Option(
    key="lookup.cache.bloom.filter.enabled", parse=parse_bool, default=True,
    doc="Write a bloom filter into sort and hash lookup files, so that most misses read no block.",
)  # fmt: skip
LOOKUP_CACHE_BLOOM_FILTER_FPP = Option(
    key="lookup.cache.bloom.filter.fpp", parse=fraction, default=0.05,
    doc="Share of absent keys that such a filter lets through.",
)  # fmt: skip
LOOKUP_CACHE_SPILL_COMPRESSION = Option(
    key="lookup.cache-spill-compression", parse=one_of(("zstd", "none")), default="zstd",
    doc="Compression of blocks in sort lookup files.",
)  # fmt: skip
CACHE_PAGE_SIZE = Option(
    key="cache-page-size", parse=parse_bytes, default=64 << 10,
    doc="Size of a block in sort lookup files.",
)  # fmt: skip

# --- index ---------------------------------------------------------------------------------------

INDEX_TYPE = Option(
    key="index.type", parse=one_of(IndexType), default=IndexType.BUCKET, immutable=True,
    doc="How `locate` finds the records that rows replace: bucket (the key's own bucket), bloom (key ranges and bloom filters in file footers), simple (a join with the key columns), inmemory (the keys of all files, kept), and global-bloom or global-simple, which look in every partition.",
)  # fmt: skip
INDEX_BLOOM_NUM_ENTRIES = Option(
    key="index.bloom.num_entries", parse=at_least(1), default=60_000,
    doc="Keys that a bloom filter in a footer is sized for at least; the file's rows when they are more.",
)  # fmt: skip
INDEX_BLOOM_FPP = Option(
    key="index.bloom.fpp", parse=fraction, default=1e-9, default_text="1e-9",
    doc="Share of absent keys that a bloom filter in a footer lets through.",
)  # fmt: skip
INDEX_BLOOM_FILTER_TYPE = Option(
    key="bloom.index.filter.type", parse=one_of(BloomFilterType),
    default=BloomFilterType.DYNAMIC_V0,
    doc="Kind of bloom filter in a footer: simple, or dynamic-v0, which grows with the file.",
)  # fmt: skip
INDEX_BLOOM_DYNAMIC_MAX_ENTRIES = Option(
    key="bloom.index.filter.dynamic.max.entries", parse=at_least(1), default=100_000,
    doc="Keys up to which a dynamic-v0 filter grows.",
)  # fmt: skip
INDEX_BLOOM_PRUNE_BY_RANGES = Option(
    key="bloom.index.prune.by.ranges", parse=parse_bool, default=True,
    doc="Skip files whose key range cannot hold a key; given up by itself where ranges overlap so much that it does not pay.",
)  # fmt: skip
INDEX_BLOOM_USE_TREE = Option(
    key="bloom.index.use.treebased.filter", parse=parse_bool, default=True,
    doc="Accepted, and nothing depends on it: keys are kept sorted, so that the keys in a file's range are one slice of them, found by two binary searches.",
)  # fmt: skip
INDEX_BLOOM_BUCKETIZED_CHECKING = Option(
    key="bloom.index.bucketized.checking", parse=parse_bool, default=True,
    doc="`locate` on Spark: cut buckets, so that tasks have about equal numbers of rows to search; otherwise each bucket goes to one task.",
)  # fmt: skip
INDEX_BLOOM_KEYS_PER_BUCKET = Option(
    key="bloom.index.keys.per.bucket", parse=at_least(1), default=10_000_000,
    doc="`locate` on Spark: rows of data files that one task searches at most, if no single file has more.",
)  # fmt: skip
INDEX_BLOOM_UPDATE_PARTITION_PATH = Option(
    key="bloom.index.update.partition.path", parse=parse_bool, default=True,
    doc="With global-bloom, a record that changes its partition is deleted there and inserted here; otherwise it stays where it is, and rows take that partition's values.",
)  # fmt: skip
INDEX_SIMPLE_UPDATE_PARTITION_PATH = Option(
    key="simple.index.update.partition.path", parse=parse_bool, default=True,
    doc="The same for every other `index.type`: for global-simple, and for upserts of keys that lack partition columns.",
)  # fmt: skip

FILE_INDEX_BLOOM_FILTER_COLUMNS = Option(
    key="file-index.bloom-filter.columns", parse=names, default=NO_NAMES,
    doc="Columns of which each new data file has a bloom filter: it rules files out for equality, and is small.",
)  # fmt: skip
FILE_INDEX_BITMAP_COLUMNS = Option(
    key="file-index.bitmap.columns", parse=names, default=NO_NAMES,
    doc="Columns of which each new data file has a bitmap per value: it finds rows for equality and nulls, best of few values.",
)  # fmt: skip
FILE_INDEX_BSI_COLUMNS = Option(
    key="file-index.bsi.columns", parse=names, default=NO_NAMES,
    doc="Columns of numbers or times of which each new data file has a bitmap per bit: it finds rows for equality and ranges.",
)  # fmt: skip
FILE_INDEX_RANGE_BITMAP_COLUMNS = Option(
    key="file-index.range-bitmap.columns", parse=names, default=NO_NAMES,
    doc="Columns of which each new data file has its values in order, and bitmaps of their places: it finds rows for equality and ranges of many values.",
)  # fmt: skip
FILE_INDEX_IN_MANIFEST_THRESHOLD = Option(
    key="file-index.in-manifest-threshold", parse=parse_bytes, default=500, default_text="500 B",
    doc="A file's indexes up to this size lie in its manifest entry, where a scan needs no request for them; larger ones in a file beside it.",
)  # fmt: skip
FILE_INDEX_READ_ENABLED = Option(
    key="file-index.read.enabled", parse=parse_bool, default=True,
    doc="Scans use file indexes.",
)  # fmt: skip

DISABLE_EXPLICIT_TYPE_CASTING = Option(
    key="disable-explicit-type-casting", parse=parse_bool, default=False,
    doc="Refuse to change the type of a column where values may lose something.",
)  # fmt: skip
ALTER_COLUMN_LOSSY_CASTS = Option(
    key="alter-column.lossy-casts", parse=parse_bool, default=False,
    doc="Read values that a column's narrower type cannot hold as Java does (whole numbers keep their low bits, decimals become null, text and fractions are cut), and alter columns that have some. Otherwise both are refused. No option of Java's, which ignores it.",
)  # fmt: skip
ALTER_COLUMN_NULL_TO_NOT_NULL_DISABLED = Option(
    key="alter-column-null-to-not-null.disabled", parse=parse_bool, default=True, supported=bool,
    doc="A nullable column cannot be altered to NOT NULL.",
)  # fmt: skip

FIELD_OPTIONS = (
    FieldOption(suffix="stats-mode", doc="`metadata.stats-mode` of one column."),
    FieldOption(
        suffix="sequence-group", guards=READ,
        doc="Columns of which this column is the sequence field (partial-update).",
    ),
    FieldOption(
        suffix="aggregate-function", guards=READ,
        doc="How values of this column add up (aggregation).",
    ),
    FieldOption(
        suffix="ignore-retract", guards=READ,
        doc="Rows that take a value away do not touch this column (aggregation).",
    ),
    FieldOption(
        suffix="list-agg-delimiter", guards=READ,
        doc="What stands between the parts of a listagg column; default a comma.",
    ),
    FieldOption(
        suffix="distinct", guards=READ, doc="Collect or listagg keeps one of equals.",
    ),
    FieldOption(
        suffix="nested-key", guards=READ, doc="Key of the rows in a nested_update.",
    ),
    FieldOption(
        suffix="nested-sequence-field", guards=READ,
        doc="Fields of nested rows; of one nested key the greatest stands (nested_update).",
    ),
    FieldOption(
        suffix="nested-key-null-strategy", guards=READ,
        doc="Nested rows with a null in their key: merge (a value like others), ignore or error.",
    ),
    FieldOption(
        suffix="count-limit", guards=READ,
        doc="Rows that a nested_update holds at most. Which of more they are depends on what is merged "
        "first, also of those that replace one that is held.",
    ),
    FieldOption(
        suffix="ts-field", guards=READ,
        doc="The field of a map's values by which the newest wins (merge_map_with_keytime).",
    ),
    FieldOption(
        prefix="file-index.bloom-filter.", suffix="fpp",
        doc="Share of absent values that the filter lets through; default 0.1.",
    ),
    FieldOption(
        prefix="file-index.bloom-filter.", suffix="items",
        doc="Distinct values of a file that the filter is sized for; default: the rows of each file.",
    ),
    FieldOption(
        prefix="file-index.bitmap.", suffix="version",
        doc="1, which Paimon 1.0 reads, or 2 (the default), which finds a value without reading all.",
    ),
    FieldOption(
        prefix="file-index.bitmap.", suffix="index-block-size",
        doc="Bytes of a block of values of version 2; default 16 kb.",
    ),
    FieldOption(
        prefix="file-index.range-bitmap.", suffix="chunk-size",
        doc="Bytes of a chunk of values; default 16 kb, of short types a chunk for each value.",
    ),
)  # fmt: skip

BY_KEY: Mapping[str, Option[Any]] = MappingProxyType(
    {value.key: value for value in tuple(globals().values()) if isinstance(value, Option)}
)
_BY_ALIAS = {alias: option for option in BY_KEY.values() for alias in option.aliases}


def find(key: str) -> Option[Any] | FieldOption | None:
    """Return the declaration behind an option key, aliases and `fields.*` included."""
    if key in BY_KEY or key in _BY_ALIAS:
        return BY_KEY.get(key) or _BY_ALIAS[key]
    return next((option for option in FIELD_OPTIONS if option.column_of(key)), None)
