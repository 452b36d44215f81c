"""Spark sessions: a local one, and the settings that any other session needs."""

import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from threading import Lock

from pyspark.sql import SparkSession

from lsm_engine.base.errors import ErrorKind, InvalidOptionError, NotFoundError
from lsm_engine.storage.file_io import FileIO
from lsm_engine.storage.local import LocalFileIO

JAVA_OLDEST = 17
_REMEDY = "install Java 17 or 21 (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
_TASK_ATTEMPTS = 4
_TASKS_PER_CORE = 2
_SHUFFLE_PARTITIONS = 200
_LOOPBACK = "127.0.0.1"
_NAMED_PYTHON = ("spark.pyspark.python", "spark.pyspark.driver.python")
_one_at_a_time = Lock()
_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=240m")
"""With one compiler alone Java reserves 48 MB for its code: Spark fills them, and then runs what is new without a compiler."""


def engine_settings() -> dict[str, str]:
    """Return the settings that any session should have for the engine's jobs; each may be set at run time.

    Larger Arrow batches than Spark's 10,000 rows (still at most 64 MB each), and TIME columns, which Spark
    leaves off.
    """
    return {
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.timeType.enabled": "true",
    }


def local_settings(
    *, threads: int | None = None, memory: str = "2g", quick_start: bool = False
) -> dict[str, str]:
    """Return the configuration of a session on this machine that opens no port to other machines.

    `threads` None takes every core; `memory` bounds the JVM's heap. A task is tried four times, as
    on a cluster. `quick_start` halves the processor time of the first minute by compiling the JVM's
    code less well: right for short jobs, wrong where many rows pass through the JVM. Usable with
    any builder, such as dagster-pyspark's `spark_config`.
    """
    cores = threads or len(os.sched_getaffinity(0))
    quiet = files("lsm_engine.spark").joinpath("log4j2.properties")
    java_options = [f"-Dlog4j2.configurationFile={quiet}", *(_QUICK if quick_start else ())]
    return {
        "spark.master": f"local[{cores},{_TASK_ATTEMPTS}]",
        "spark.driver.host": _LOOPBACK,
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": " ".join(java_options),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # Times without a zone stay without one when Arrow data becomes a DataFrame.
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.python.daemon.module": "lsm_engine.spark.worker_daemon",
        **engine_settings(),
    }


def local_session(
    *,
    app_name: str = "lsm",
    threads: int | None = None,
    memory: str = "2g",
    quick_start: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session on this machine, started if there is none; `settings` go on top.

    The other arguments are those of `local_settings`.

    Its workers run this interpreter. A session that is already active is returned with the
    settings that can still change applied. Raises NotFoundError without Java, and
    InvalidOptionError when Java is too old, before anything is started.
    """
    check_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable  # the context reads it when it starts
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    chosen = local_settings(threads=threads, memory=memory, quick_start=quick_start)
    configured = {**chosen, **(settings or {})}
    builder = SparkSession.builder.appName(app_name)
    for key, value in configured.items():
        builder = builder.config(key, value)
    with without_pandas_notice():
        return builder.getOrCreate()


@contextmanager
def set_meanwhile(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    """Give a setting of the session another value inside, for one thread at a time."""
    with _one_at_a_time:
        before = spark.conf.get(key, None)
        spark.conf.set(key, value)
        try:
            yield
        finally:
            spark.conf.unset(key) if before is None else spark.conf.set(key, before)


@contextmanager
def without_pandas_notice() -> Iterator[None]:
    """Silence PySpark's warning about pandas 3 inside: it loads pandas and we use none of it."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="PySpark does not yet fully support pandas", category=FutureWarning
        )
        yield


def check_java() -> int:
    """Return the major version of the Java that Spark will start.

    Raises NotFoundError if there is none and InvalidOptionError if Spark does not run on it.
    """
    home = os.environ.get("JAVA_HOME")
    program = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    if program is None:
        raise NotFoundError(f"Spark needs Java, and none was found; {_REMEDY}", java_home=home)
    return _suitable_version(program)


@cache
def _suitable_version(program: str) -> int:
    """Return the major version of a Java; asked once a process, as each answer starts a JVM. Errors are not kept."""
    printed = subprocess.run(
        [program, "-version"], capture_output=True, text=True, timeout=60, check=False
    )
    version = java_version(printed.stderr + printed.stdout)
    if version is None or version < JAVA_OLDEST:
        raise InvalidOptionError(
            f"Spark does not run on this Java; {_REMEDY}", java=program, version=version
        )
    return version


def java_version(banner: str) -> int | None:
    """Return the major version in the output of `java -version`; None without one.

    Versions before 9 call themselves 1.x: "1.8.0_392" is 8.
    """
    _, quote, version_text = banner.partition('version "')
    numbers = version_text.split('"', maxsplit=1)[0].replace("-", ".").split(".")
    major = numbers[1] if numbers[0] == "1" and len(numbers) > 1 else numbers[0]
    return int(major) if quote and major.isdigit() else None


def task_goal(spark: SparkSession) -> int:
    """Return how many tasks keep all cores busy: two a core.

    Where the session does not know its cores, or executors come when they are needed, it is
    `spark.sql.shuffle.partitions` (at least); 200 where that is no number, such as Databricks' "auto".
    """
    goal = 0
    if is_classic(spark):
        goal = _TASKS_PER_CORE * spark.sparkContext.defaultParallelism
        if spark.conf.get("spark.dynamicAllocation.enabled", "false") != "true":
            return goal
    setting = spark.conf.get("spark.sql.shuffle.partitions", "2") or "2"
    return max(goal, int(setting) if setting.isdigit() else _SHUFFLE_PARTITIONS)


def task_attempts(spark: SparkSession) -> int:
    """Return how often a task is tried before its job fails; in local mode the master's URL holds it."""
    master = spark.conf.get("spark.master", "") or ""
    if master.startswith("local") and not master.startswith("local-cluster"):
        tries = re.fullmatch(r"local\[[^,]+,\s*(\d+)\]", master)
        return int(tries[1]) if tries else 1
    return int(spark.conf.get("spark.task.maxFailures", str(_TASK_ATTEMPTS)) or _TASK_ATTEMPTS)


def is_classic(spark: object) -> bool:
    """Whether a session has its JVM at hand; a Spark Connect session is of another class."""
    return isinstance(spark, SparkSession)


# -- Shared storage --------------------------------------------------------------------------------
#
# Refuses a table on a disk of the driver before the executors of a cluster write to disks of
# their own.

SHARED_DISK = "spark.lsm.shared-disk"
"""Setting of a session: every executor sees the driver's paths (NFS or the like). Default: false."""

DRIVER_BYTES = "spark.lsm.driver-bytes"
"""Setting of a session: the driver itself writes rows that Spark estimates at no more; "0": executors write all. Default: 32mb."""

READS_PARQUET = "spark.lsm.read-parquet"
"""Setting of a session: whether Spark's own reader may read a table's files. Default: true."""

STATEMENTS = "spark.lsm.sql"
"""Setting of a session: whether `spark.sql` takes the engine's statements. Default: true, once `register` has put it there."""

AT_WORK = "lsm.engine-at-work"
"""Local property of a thread of the JVM: its statements are the engine's own, which Spark runs as they are."""


def use_this_python(spark: SparkSession) -> None:
    """Have workers of this machine run this interpreter, unless a setting names another one.

    Spark takes the first python3 of PATH, which is another where an environment is not activated: it has neither
    this package nor the same libraries.
    """
    if not is_classic(spark) or "PYSPARK_PYTHON" in os.environ:
        return
    is_local = str(spark.conf.get("spark.master", "")).startswith("local")
    if is_local and not any(spark.conf.get(key, None) for key in _NAMED_PYTHON):
        spark.sparkContext.pythonExec = sys.executable


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
