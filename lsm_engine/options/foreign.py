"""Table options of other clients that this version does not declare, each sorted once.

The list is that of Java 1.4.2, 2.0.0 and the sources after it, of Flink and Spark for them, and of older releases. An option is
harmless where rows, changes and files come out right without it. docs/options.md is generated from
here, too.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from lsm_engine.base.record import record


class Verdict(Enum):
    """Which access an unsupported option prevents."""

    HARMLESS = "harmless"
    REFUSES_WRITING = "refuses writing"
    REFUSES_READING = "refuses reading and writing"
    UNKNOWN = "unknown: refuses writing, and reading warns"


@record
class OtherOption:
    """An option of other clients. `harmless_values`: values that change nothing."""

    verdict: Verdict
    reason: str
    harmless_values: tuple[str, ...] = ()

    def verdict_of(self, text: str) -> Verdict:
        """Return the verdict on one value."""
        if text.strip().lower() in self.harmless_values:
            return Verdict.HARMLESS
        return self.verdict


UNKNOWN = OtherOption(verdict=Verdict.UNKNOWN, reason="this version does not know the option")
_OFF = ("false",)
_HARMLESS: tuple[tuple[str, str], ...] = (
    (
        "memory, threads and speed of the client that it is for",
        """
        async-file-write blob-compaction.enabled blob.copy-buffer-size blob.split-by-file-size
        blob.target-file-size data-evolution.merge-into.file-pruning
        data-evolution.merge-into.source-persist
        data-evolution.row-id-conflict-rewrite.max-size
        compaction.bucket-distribution-strategy compaction.file-num-limit compaction.max.file-num continuous.discovery-interval
        delete-file.thread-num filesystem.job-level-settings.enabled file-operation.thread-num file-reader-async-threshold
        local-kv-db.block-size local-sort.max-num-file-handles lookup.async lookup.async-thread-number
        lookup.blob-as-descriptor lookup.bootstrap-parallelism lookup.cache lookup.cache-rows
        lookup.continuous.discovery-interval
        lookup.dynamic-partition.refresh-interval lookup.dynamic-partition.refresh.async lookup.merge-buffer-size
        lookup.merge-records-threshold orc.write.batch-size page-size
        postpone.batch-write-fixed-bucket.max-parallelism precommit-compact
        changelog.precommit-compact changelog.precommit-compact.thread-num
        read.batch-size read.shuffle-bucket-with-partition scan.bounded scan.dedicated-split-generation scan.infer-parallelism scan.infer-parallelism.max
        scan.manifest.parallelism scan.max-snapshot.count scan.max-splits-per-task
        scan.parallelism scan.plan-sort-partition sort-compaction.local-sample.magnification
        sort-compaction.range-strategy spill-compression spill-compression.zstd-level
        streaming-read.shuffle-bucket-with-partition streaming.read.snapshot.delay
        unaware-bucket.compaction.parallelism unaware-bucket.no-shuffle vector-search.distribute.enabled
        vector-search.lateral-join.batch-size vector-search.lateral-join.parallelism vector.target-file-size write-buffer-for-append
        write.sequence-number-init-mode write.use-v2-write
        write-buffer-spill.max-disk-size write-max-writers-to-spill write.batch-memory
        write.batch-size zorder.var-length-contribution
        """,
    ),
    (
        "where rows lie in new files, their names or their statistics; readers need neither",
        """
        bucket-append-ordered changelog-file.prefix clustering.columns
        clustering.history-partition.idle-to-full-sort clustering.history-partition.limit
        clustering.incremental clustering.incremental.mode
        clustering.incremental.optimize-write clustering.strategy
        compaction.delete-ratio-threshold compaction.small-file-ratio data-evolution.compaction.rewrite-row-ids
        data-evolution.reassign.skip-contiguous-row-count data-evolution.row-sidecar.enabled
        data-evolution.row-sidecar.max-selected-rows
        data-evolution.row-sidecar.max-selection-ratio data-file.prefix file.suffix.include.compression force-lookup
        global-index.build.max-parallelism global-index.build.max-shard
        global-index.column-update-action global-index.enabled
        global-index.row-count-per-shard global-index.thread-num
        lookup.remote-file.enabled lookup.remote-file.level-threshold
        manifest-sort.enabled manifest-sort.max-rewrite-size manifest-sort.partition-field
        manifest.delete-file-drop-stats manifest.merge-optimize.enabled metadata.stats-keep-first-n-columns
        metadata.stats-mode.per.level overwrite-upgrade partition.sink-strategy
        postpone.batch-write-fixed-bucket.rescale-load-factor
        postpone.target-row-num-per-bucket row-tracking.partition-group-on-commit target-file-row-num
        """,
    ),
    (
        "of the job that it is given to: what it waits for, checks or reports",
        """
        add-column-before-partition auto-create commit.discard-duplicate-files
        commit.strict-mode.last-safe-snapshot commit.user-prefix end-input.check-partition-expire
        end-input.watermark key-value.sequence_number.enabled log.changelog-mode log.consistency
        legacy-timestamp-mapping.enabled
        log.format log.key.format partition.idle-time-to-done
        partition.idle-time-to-report-statistic partition.mark-done-action
        partition.mark-done-action.custom.class partition.mark-done-action.mode
        partition.mark-done.recover-from-state partition.mark-done-action.http.params
        partition.mark-done-action.http.url partition.time-interval read.allow.fullscan read.changelog read.readchangelog
        requiredsparkconfscheck.enabled
        scan.fallback-branch.read-fail-fast
        scan.ignore-corrupt-files scan.ignore-lost-files scan.remove-normalize
        scan.bounded.watermark snapshot.watermark-idle-timeout
        table-read.sequence-number.enabled visibility-callback.check-interval
        visibility-callback.enabled visibility-callback.timeout
        write.hive-style-dynamic-partition.enabled
        """,
    ),
    (
        "does something only beside another option, which is refused itself",
        """
        blob-as-descriptor blob-external-storage-path blob-view.resolve.enabled
        blob-write-null-on-fetch-failure blob-write-null-on-missing-file
        chain-table.chain-partition-keys chain-table.split.key-range-enabled
        chain-table.streaming.merge-snapshot
        data-file.external-paths.specific-fs data-file.external-paths.strategy
        data-file.external-paths.weights field-delimiter full-text-index.search-mode
        global-index.search-mode incremental-between-tag-to-snapshot scalar-index.search-mode seq
        variant.infershreddingschema variant.shredding.adaptive.maxinferbufferrow
        variant.shredding.adaptive.retentionratio variant.shredding.inferencemode
        variant.shredding.maxinferbufferrow
        variant.shredding.maxschemadepth variant.shredding.maxschemawidth
        variant.shredding.minfieldcardinalityratio variant.shreddingschema
        vector-index.search-mode
        """,
    ),
    (
        "describes the table; the schema, the catalog and the path are what counts",
        "catalog comment connector database external is_managed_location location partition "
        "provider record-level.time-field-type transient_lastddltime",
    ),
)
_HARMLESS_FAMILIES: Mapping[str, str] = {
    "avro.": "how Avro files are encoded; files describe themselves",
    "blob-descriptor.": "access to blobs, whose columns are not read",
    "btree-index.": "size and speed of indexes, which readers pass over",
    "commit.callback.": "parameters of `commit.callbacks`",
    "csv.": "CSV files are refused themselves",
    "file-index.": "indexes of other types beside data files save reading; files need not have one",
    "format-table.": "of tables of another `type`, which is refused itself",
    "json.": "JSON files are refused themselves",
    "lookup.refresh.": "when a Flink lookup join reads anew",
    "materialized-table.": "of tables of another `type`, which is refused itself",
    "metadata.iceberg.": "parameters of `metadata.iceberg.storage`",
    "orc.": "how ORC files are encoded; files describe themselves",
    "parquet.": "how Parquet files are encoded; files describe themselves",
    "read.stream.": "how much Spark streaming reads at a time",
    "scan.split-enumerator.": "how Flink hands out splits",
    "scan.watermark.": "watermarks of Flink sources",
    "sink.": "how Flink jobs write",
    "source.": "how Flink jobs read",
    "tag.callback.": "parameters of `tag.callbacks`",
    "text.": "text files are refused themselves",
    "write.data-evolution.update-conflict-retry.": "how often Spark tries an update again",
    "write.merge-schema": "of one write: whether it may add columns",
}
UNREAD_COLUMNS = (
    "blob-descriptor-field", "blob-external-storage-field", "blob-field", "blob-view-field", "vector-field",
)  # fmt: skip
"""Options that name columns whose values this version does not read."""
_WRITING: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("commit.callbacks", "others rely on being called after each commit", ("",)),
    ("commit.custom-listeners", "others rely on being called after each commit", ("",)),
    ("tag.callbacks", "others rely on being called after each tag", ("",)),
    ("global-index.external-path", "new rows would not be in the indexes outside the table", ()),
    ("log.system", "rows have to go to a log as well", ("none",)),
    ("metastore.partitioned-table", "new partitions have to be registered in a metastore", _OFF),
    ("metastore.tag-to-partition", "tags have to be registered in a metastore", ()),
    ("metastore.tag-to-partition.preview", "tags have to be registered in a metastore", ("none",)),
    ("partition.end-input-to-done", "others wait for written partitions to be marked done", _OFF),
    ("partition.timestamp-format.strict", "partition values have to be checked", _OFF),
    *(
        (
            f"pk-{kind}.index.columns",
            "new rows have to go into the indexes of the primary key; readers need none of them",
            (),
        )
        for kind in ("bitmap", "btree", "full-text", "multivalue", "vector")
    ),
    *((key, "values lie elsewhere; other columns are read", ()) for key in UNREAD_COLUMNS),
    ("vector.file.format", "values lie in files of another format; other columns are read", ()),
    ("upsert-key", "writers have to replace rows of a table without a primary key", ()),
)
_READING: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("batch-scan-mode", "what a read begins with", ("none",)),
    ("branch", "the table is read and written in a branch", ("main",)),
    ("incremental-to-auto-tag", "only changes up to a tag are read", ()),
    ("index-file-in-data-file-dir", "deletion vectors lie beside the data files", _OFF),
    ("manifest.format", "only manifests in Avro are read and written", ("avro",)),
    ("orc.timestamp-ltz.legacy.type", "times in ORC files mean other instants", ("true",)),
    ("query-auth.enabled", "a catalog decides which rows and columns a reader may see", _OFF),
    ("scan.bucket", "only the rows of one bucket are read", ()),
    ("scan.creation-time-millis", "only files made after a time are read", ()),
    ("scan.fallback-delta-branch", "missing partitions are read from a branch", ()),
    ("scan.fallback-snapshot-branch", "missing partitions are read from a branch", ()),
    ("scan.file-creation-time-millis", "only files made after a time are read", ()),
    ("scan.partitions", "only some partitions are read", ()),
    ("scan.primary-branch", "partitions are read from another branch first", ()),
    ("scan.timestamp", "an older state is read", ()),
    ("scan.version", "an older state is read", ()),
    ("scan.watermark", "an older state is read", ()),
    ("stream-scan-mode", "what a stream begins with", ("none",)),
    ("streaming-read-append-overwrite", "readers of changes see what overwrites added", _OFF),
)


def _sorted_once() -> dict[str, OtherOption]:
    options = {
        key: OtherOption(verdict=Verdict.HARMLESS, reason=reason)
        for reason, keys in _HARMLESS
        for key in keys.split()
    }
    for verdict, rows in (
        (Verdict.REFUSES_WRITING, _WRITING),
        (Verdict.REFUSES_READING, _READING),
    ):
        for key, reason, harmless in rows:
            assert key not in options, key
            options[key] = OtherOption(verdict=verdict, reason=reason, harmless_values=harmless)
    return dict(sorted(options.items()))


OTHER_OPTIONS: Mapping[str, OtherOption] = MappingProxyType(_sorted_once())
OTHER_FAMILIES: Mapping[str, OtherOption] = MappingProxyType(
    {
        family: OtherOption(verdict=Verdict.HARMLESS, reason=reason)
        for family, reason in _HARMLESS_FAMILIES.items()
    }
)


def other_option(key: str) -> OtherOption:
    """Return what an option that this version does not declare is to us; UNKNOWN if it is in no list."""
    key = key.lower()
    if key in OTHER_OPTIONS:
        return OTHER_OPTIONS[key]
    return next(
        (verdict for family, verdict in OTHER_FAMILIES.items() if key.startswith(family)), UNKNOWN
    )
