"""What a table is made of, and why: the verbs of the facade that only look."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, NotFoundError
from lsm_engine.base.units import parse_age
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.amplification import Amplification
from lsm_engine.plan.file_history import FileExplanation
from lsm_engine.plan.key_history import KeyExplanation
from lsm_engine.plan.pressure import BucketPressure
from lsm_engine.plan.pressure_forecast import BucketForecast
from lsm_engine.plan.retention import retention_of
from lsm_engine.plan.retention_pins import RetentionSimulation
from lsm_engine.prune.partition import partition_rows
from lsm_engine.prune.where import Filter
from lsm_engine.schema.types import DataField
from lsm_engine.table.compact import pressure
from lsm_engine.table.ground.partition_specs import partition_columns
from lsm_engine.table.ground.schema_keys import partition_paths_of
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.time_travel import snapshot_to_read, version_named
from lsm_engine.table.inspect import (
    amplification,
    explain_file,
    explain_key,
    lookup_metrics,
    system_tables,
)
from lsm_engine.table.inspect.changed_partitions import (
    changed_partitions,
    changed_ranges,
    hides_level_0,
)
from lsm_engine.table.inspect.compare_snapshots import SnapshotDiff, compare
from lsm_engine.table.inspect.explain_retention import simulate_retention
from lsm_engine.table.inspect.system_tables_metadata import SNAPSHOTS, snapshot_rows
from lsm_engine.table.inspect.tree import BucketTree, bucket_trees
from lsm_engine.table.integrity import verify
from lsm_engine.table.integrity.verify_files import Progress
from lsm_engine.table.integrity.verify_report import VerifyReport


class TableInspect:
    """The part of a Table with its system tables and explanations; read only."""

    def __init__(self, session: TableSession) -> None:
        self.session = session

    # --- look inside -----------------------------------------------------------------------------
    def system(
        self,
        name: str,
        snapshot_id: int | None = None,
        *,
        tag: str | None = None,
        where: Filter | None = None,
        columns: str | Sequence[str] | None = None,
    ) -> pa.Table:
        """Return a system table; docs/system-tables.md lists them and their columns.

        snapshots, compactions, schemas, options, tags, branches, consumers and aggregation_fields
        describe the table; files, file_key_ranges, file_indexes, partitions, buckets, manifests, manifest_lists
        and statistics of one snapshot, by default the newest. `where` keeps some rows. Raises
        NotFoundError for a name that is none.
        """
        return system_tables.system_table(
            self.session, name, snapshot_id=snapshot_id, tag=tag, where=where, columns=columns
        )

    def history(self, limit: int | None = None) -> pa.Table:
        """Return what was committed, newest first: an Arrow table with the columns of system table `snapshots`.

        `history().to_pylist()[0]` is the newest commit as a dictionary, `snapshots()[-1]` its snapshot.

        `limit`: only the newest so many, which are the only ones then read.
        """
        rows = snapshot_rows(self.session.snapshots.newest_first(limit))
        return pa.Table.from_pylist(rows, schema=SNAPSHOTS)

    def tree(self, snapshot: Snapshot | int | None = None) -> list[BucketTree]:
        """Return each bucket's LSM tree: its sorted runs, newest first, with their sizes.

        Of the newest snapshot, or of one given whole or by its id. Raises as `snapshot()` does.
        """
        at = self.session.snapshots.load(snapshot) if isinstance(snapshot, int) else snapshot
        return bucket_trees(self.session, at)

    def partition_path(self, partition: bytes | Mapping[str, object]) -> str:
        """Return the directory of a partition, such as `dt=2024-01-01`.

        Given as it is stored in facts, or by its values: {"dt": "2024-01-01"}, all columns named.
        """
        if isinstance(partition, bytes):
            return self.session.context().partition_path(partition)
        return self.partition_paths({name: [value] for name, value in partition.items()})[0]

    def partition_paths(self, columns: Mapping[str, Sequence[object]]) -> list[str]:
        """Return the directories of partitions, given as the values of every partition column."""
        schema = self.session.schema
        return partition_paths_of(schema, partition_columns(schema, columns))

    def partition_rows(self, partitions: Sequence[bytes]) -> pa.Table:
        """Return partitions, given as they are stored in facts, as a table of the partition columns."""
        return _opened(partitions, self.session.schema.select(self.session.schema.partition_keys))

    def key_rows(self, keys: Sequence[bytes]) -> pa.Table:
        """Return keys, given as they are stored in facts, as a table of the key without partition columns."""
        schema = self.session.schema
        return _opened(keys, schema.select(schema.trimmed_primary_keys))

    def pressure(self) -> list[BucketPressure]:
        """Return the compaction debt of each bucket, the greatest first."""
        return pressure.bucket_pressures(self.session)

    def due_buckets(self) -> frozenset[tuple[bytes, int]]:
        """Return the (partition, bucket) pairs, as in `pressure()`, that `compact()` would work on now."""
        return pressure.due_buckets(self.session)

    def forecast(self) -> list[BucketForecast]:
        """Return each bucket's debt, and when it is due at the pace of the newest commits."""
        return pressure.bucket_forecasts(self.session)

    def amplification(self, commit_count: int | None = None) -> Amplification:
        """Return what the tree costs beside its rows: write, read and space amplification.

        Over the newest `commit_count` snapshots, by default all that have not expired.
        """
        return amplification.measured(self.session, commit_count=commit_count)

    def lookup_metrics(self) -> pa.Table:
        """Return, per lookup file of this process, how many keys it was asked for and how many it had.

        Columns: `lookup_file`, `used_by` (lookup or compaction), `file_size_in_bytes`, `request_count`,
        `hit_count`, `removal_cause`: null while it is there, else explicit (its data file left the levels, or
        its reader closed), replaced (found damaged), expired (idle) or size. Of removed files the last
        1,000 of the process are known. `lsm cache --files` shows those of other processes.
        """
        return lookup_metrics.lookup_metrics(self.session)

    def diff_snapshots(
        self, first: int | str | None, second: int | str | None = None
    ) -> SnapshotDiff:
        """Return which files came and went from one snapshot, by id or tag, to another (None: the newest).

        `first` None: from nothing. Raises NotFoundError for a snapshot or tag that is not there.
        """
        newer = snapshot_to_read(self.session, **version_named(second))
        if newer is None:
            raise NotFoundError(
                "the table is empty; there is no snapshot to compare",
                kind=ErrorKind.NO_SUCH_SNAPSHOT,
            )
        older = (
            snapshot_to_read(self.session, **version_named(first)) if first is not None else None
        )
        return compare(self.session, older, newer)

    def changed_partitions(self, snapshot: Snapshot | int) -> frozenset[str] | None:
        """Return the partitions whose rows a commit may have changed, as `dt=2024-01-01`; None: any.

        "" stands for the whole of a table without partitions. A compaction changes none, unless
        `hides_level_0`: then it changes those whose rows it takes up, and a write alone none. What
        expired snapshots changed: `Lineage.commits_of_table`. Raises as `snapshot()` does.
        """
        at = self.session.snapshots.load(snapshot) if isinstance(snapshot, int) else snapshot
        return changed_partitions(self.session, at)

    def changed_ranges(self, snapshot: Snapshot | int, column: str) -> pa.Table | None:
        """Return in which range of a column's values a commit may have changed rows; None: any rows.

        A row per file that came or went: `partition_path`, `low` and `high`; null: any value. Of a
        partition column they are exact. Of another they are the file's least and greatest value, of a
        primary key and of append tables alone: other columns of a row with a key may have had any
        value before. Files in which it is null throughout are left out. Raises as `snapshot()` does.
        """
        at = self.session.snapshots.load(snapshot) if isinstance(snapshot, int) else snapshot
        return changed_ranges(self.session, at, column)

    @property
    def hides_level_0(self) -> bool:
        """Whether rows are read once a compaction has taken them up: first-row, deletion vectors."""
        return hides_level_0(self.session)

    # --- explain ---------------------------------------------------------------------------------
    def explain_key(
        self, key: Mapping[str, Any], snapshot_id: int | None = None, tag: str | None = None
    ) -> KeyExplanation:
        """Return every stored version of one key in merge order, and the rule that decided.

        `key`: the primary key columns. Of the newest snapshot, or of one that an id or a tag names.
        `print(table.explain_key({"id": 5}))` is readable; `.versions` is an Arrow table. Raises
        InvalidInputError for keys that are missing, null or of another type.
        """
        at = snapshot_to_read(self.session, snapshot_id=snapshot_id, tag=tag)
        named = at is not None and (snapshot_id, tag) != (None, None)
        session = self.session.as_of(at) if named and at is not None else self.session
        return explain_key.explain_key(session, at, key)

    def explain_file(self, file_name: str) -> FileExplanation:
        """Return which commit added a data file, which compaction took it, and what pins it.

        Raises NotFoundError if no snapshot and no tag names it.
        """
        return explain_file.explain_file(self.session, file_name)

    def simulate_retention(
        self,
        *,
        retain_min: int | None = None,
        retain_max: int | None = None,
        older_than: str | None = None,
        later: str = "0 ms",
    ) -> RetentionSimulation:
        """Return what could still be read, what would be freed, and what pins what; touch nothing.

        Arguments as of `expire_snapshots`; `later`: as if that much time had passed, such as "7 d".
        """
        retention = retention_of(
            self.session.options,
            retain_min=retain_min,
            retain_max=retain_max,
            older_than=older_than,
        )
        return simulate_retention(self.session, retention, later_millis=parse_age(later))

    def verify(
        self,
        snapshot_id: int | None = None,
        *,
        deep: bool = False,
        incremental: bool = False,
        progress: Progress | None = None,
    ) -> VerifyReport:
        """Check that every snapshot and tag (or one snapshot) reads: files, sizes, totals, levels.

        `deep`: also every page of every data file. `incremental`: without files that an earlier
        incremental verification read and that have not changed. `progress(path, files read before)` is
        called after each. All problems are listed; none is raised. On Spark: `spark.verify_table`.
        """
        return verify.verify(
            self.session,
            snapshot_id=snapshot_id,
            deep=deep,
            incremental=incremental,
            progress=progress,
        )


def _opened(stored: Sequence[bytes], fields: Sequence[DataField]) -> pa.Table:
    return partition_rows(pa.array(stored, pa.binary()), fields)
