"""Which buckets want a compaction, and how badly."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from lsm_engine.base.record import record
from lsm_engine.base.units import format_bytes
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.manifest import ManifestEntry, by_bucket


@record
class BucketPressure:
    """The compaction debt of one bucket. Sizes in bytes; runs are sorted runs.

    `debt_bytes`: what a full compaction would read, all but files that already lie alone in the
    lowest level; 0 if the bucket is one run without deletes. `compactable`: a compaction is due, as the
    strategy picks some of the runs now; of rows that wait for a bucket (below 0), their files have reached
    `run_trigger`. `stopping`: runs are above the stop trigger, so that writers wait.
    """

    partition: bytes
    bucket: int
    run_count: int
    level0_file_count: int
    file_count: int
    size_bytes: int
    debt_bytes: int
    delete_row_count: int
    run_trigger: int
    stop_trigger: int
    reason: str
    compactable: bool

    @property
    def stopping(self) -> bool:
        """Whether writers wait for a compaction."""
        return self.run_count > self.stop_trigger


def pressures(
    live: Iterable[ManifestEntry],
    *,
    run_trigger: int,
    stop_trigger: int,
    picked: Collection[tuple[bytes, int]],
) -> tuple[BucketPressure, ...]:
    """Return the pressure of every bucket with live files, the most urgent first.

    `picked`: the buckets, with their partition, in which the compaction strategy picks something now.
    """
    pressures = [
        pressure_of(
            *bucket,
            [entry.file for entry in entries],
            run_trigger=run_trigger,
            stop_trigger=stop_trigger,
            is_picked=bucket in picked,
        )
        for bucket, entries in by_bucket(live).items()
    ]
    return tuple(
        sorted(
            pressures,
            key=lambda bucket_pressure: (
                -bucket_pressure.run_count,
                -bucket_pressure.debt_bytes,
                bucket_pressure.partition,
                bucket_pressure.bucket,
            ),
        )
    )


def pressure_of(
    partition: bytes,
    bucket: int,
    files: Iterable[DataFileMeta],
    *,
    run_trigger: int,
    stop_trigger: int,
    is_picked: bool,
) -> BucketPressure:
    """Return the pressure of one bucket: each level-0 file is a run, each deeper level is one."""
    listed = tuple(files)
    level0 = sum(file.level == 0 for file in listed)
    deeper = {file.level for file in listed} - {0}
    run_count = level0 + len(deeper)
    size = sum(file.file_size for file in listed)
    deletes = sum(file.delete_row_count or 0 for file in listed)
    compacted = run_count <= 1 and not any(file.may_hold_deletes for file in listed)
    compactable = is_picked or (bucket < 0 and run_count >= run_trigger)
    pressure = BucketPressure(
        partition=partition,
        bucket=bucket,
        run_count=run_count,
        level0_file_count=level0,
        file_count=len(listed),
        size_bytes=size,
        debt_bytes=0 if compacted else size,
        delete_row_count=deletes,
        run_trigger=run_trigger,
        stop_trigger=stop_trigger,
        reason="",
        compactable=compactable,
    )
    return replace(pressure, reason=_reason(pressure, compacted=compacted))


def _reason(pressure: BucketPressure, *, compacted: bool) -> str:
    run_count, run_trigger = pressure.run_count, pressure.run_trigger
    runs = f"{run_count} sorted run{'s' if run_count != 1 else ''}"
    debt = f"{format_bytes(pressure.size_bytes)} to merge"
    if pressure.stopping:
        return f"writers wait: {runs}, above the stop trigger {pressure.stop_trigger}; {debt}"
    if pressure.compactable:
        return f"due: {runs}, trigger {run_trigger}; {debt}"
    if compacted:
        return f"in shape: {runs}"
    if run_count >= run_trigger:
        return (
            f"not due: {runs}, trigger {run_trigger}, of sizes that are not worth a merge; {debt}"
        )
    missing = run_trigger - run_count
    missing_text = f"{missing} more run{'s' if missing != 1 else ''}"
    return f"{missing_text} until due: {runs}, trigger {run_trigger}; {debt}"
