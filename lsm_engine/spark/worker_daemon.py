"""Starts the Python workers of a session with the engine loaded: `spark.python.daemon.module`.

Spark forks its workers from one process. Whatever that process has loaded costs each worker nothing,
neither the first ones nor those that replace a worker whose task failed; loading the engine in each
costs some 2 s of processor time. PySpark itself loads nothing before the fork, for fear of threads:
those of NumPy and Arrow are known to start anew in a forked process.
"""

import gc

from pyspark import daemon, worker

from lsm_engine.spark import staging

LOADED: tuple[object, ...] = (worker, staging)
"""What the workers' tasks are made of; naming it here is what loads it."""
try:
    from lsm_engine.spark.source import datasource as datasource_source
    from lsm_engine.spark.source import reader

    LOADED += (datasource_source, reader)
except ImportError:
    """PySpark before 4.1: no tasks read the format."""

if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # a worker collects garbage after every task, and need not look at all this
    daemon.manager()
