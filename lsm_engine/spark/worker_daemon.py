"""The daemon that forks the Python workers of a session, with the engine loaded: `spark.python.daemon.module`.

Spark forks all workers from one process. A module that this process has loaded costs a worker nothing, and loading
the engine costs about 2 s of processor time. PySpark loads no module before the fork, because threads do not survive
it: those of NumPy and Arrow start again in a forked process.
"""

import gc

from pyspark import daemon, worker

from lsm_engine.spark import staging

LOADED: tuple[object, ...] = (worker, staging)
"""What the workers' tasks are made of; naming it here is what loads it."""
try:
    from lsm_engine.spark.source import datasource, reader

    LOADED += (datasource, reader)
except ImportError:
    """PySpark before 4.1: no tasks read the format."""

if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # a worker collects garbage after every task, and need not look at all this
    daemon.manager()
