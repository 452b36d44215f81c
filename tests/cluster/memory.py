"""How much memory a worker's executors take: their JVM, and the Python processes below it."""

import contextlib
import threading
from collections.abc import Mapping
from typing import Self

import psutil

_EVERY_SECONDS = 0.25
MEGABYTE = 1 << 20


class PeakMemory:
    """Watches workers, pids by name, as long as it is entered; afterwards `peaks` has megabytes.

    A page that processes share counts once (PSS): workers forked from one daemon share what it had loaded.
    An executor's peak is that of its JVM and its Python processes at the same moment.
    """

    def __init__(self, workers: Mapping[str, int]) -> None:
        self._workers = workers
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peaks: dict[str, int] = {"executor": 0, "jvm": 0, "python": 0}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(_EVERY_SECONDS):
            for pid in self._workers.values():
                with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                    for process in psutil.Process(pid).children(recursive=True):
                        self._look(process)

    def _look(self, process: psutil.Process) -> None:
        with contextlib.suppress(psutil.Error):
            if not is_executor(process):
                return
            jvm = _megabytes(process)
            python = sum(_megabytes(each) for each in process.children(recursive=True))
            for name, found in (("jvm", jvm), ("python", python), ("executor", jvm + python)):
                self.peaks[name] = max(self.peaks[name], found)


def is_executor(process: psutil.Process) -> bool:
    """Whether it is an executor's JVM."""
    return "CoarseGrainedExecutorBackend" in " ".join(process.cmdline())


def _megabytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss // MEGABYTE)
    except psutil.Error:
        return 0
