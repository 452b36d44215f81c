"""Refuses a table on a disk of the driver before the executors of a cluster write to disks of their own."""

from pyspark.sql import SparkSession

from lsm_engine.base.errors import ErrorKind, InvalidOptionError
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.local import LocalFileIO
from lsm_engine.spark.session import is_classic

SHARED_DISK = "spark.lsm.shared-disk"
"""Setting of a session: every executor sees the driver's paths (NFS or the like). Default: false."""

DRIVER_BYTES = "spark.lsm.driver-bytes"
"""Setting of a session: the driver itself writes rows that Spark estimates at no more; "0": executors write all. Default: 32mb."""


def runs_elsewhere(spark: SparkSession) -> bool:
    """Whether the session's executors may not see the disks of this process.

    They do where the master is local, or where `spark.lsm.shared-disk` says so. What runs behind
    Spark Connect is on another machine even where its own master is local.
    """
    if str(spark.conf.get(SHARED_DISK, "false")).lower() == "true":
        return False
    return not is_classic(spark) or not (spark.conf.get("spark.master", "") or "").startswith(
        "local"
    )


def check_shared(spark: SparkSession, file_io: FileIO) -> None:
    """Raise as `refuse_disk` does if executors work elsewhere and the storage is a disk."""
    if isinstance(file_io, LocalFileIO) and runs_elsewhere(spark):
        refuse_disk(file_io.root)


def refuse_disk(location: str) -> None:
    """Raise InvalidOptionError for a location that each machine of a cluster has for itself."""
    raise InvalidOptionError(
        "executors of this session run on other machines, and this path means a disk of each of them: "
        f"keep the table on storage that all of them share, or set {SHARED_DISK}=true if the "
        "path is a mount that every one of them has",
        kind=ErrorKind.NOT_SHARED,
        location=location,
        option=SHARED_DISK,
    )
