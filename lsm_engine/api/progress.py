"""The progress of long work, shown on stderr in a notebook or at a terminal.

The bars of the command line are those of rich, which needs ipywidgets in a notebook.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from lsm_engine.maintenance.verify_files import Progress
from lsm_engine.storage.clock import SystemClock

_SHOWN_EVERY_MILLIS = 200


class _Line:
    """One line that is written over: a notebook and a terminal go back to its start at a carriage return."""

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._clock = SystemClock()
        self._start = self._shown = self._clock.monotonic_millis()
        self._is_shown = sys.stderr.isatty() or "ipykernel" in sys.modules

    def show(self, count: int, *, last: bool = False) -> None:
        """Show how many there are by now; not more often than eyes can follow."""
        now = self._clock.monotonic_millis()
        if self._is_shown and (last or now - self._shown >= _SHOWN_EVERY_MILLIS):
            self._shown = now
            end = "\n" if last else ""
            sys.stderr.write(
                f"\r{count:,} {self._noun} read, {(now - self._start) / 1000:.1f} s{end}"
            )
            sys.stderr.flush()


@contextmanager
def reported(noun: str, *, progress: Progress | bool | None) -> Iterator[Progress | None]:
    """Yield what the caller of long work gave as `progress`; True is a line of this module."""
    if not isinstance(progress, bool):
        yield progress
        return
    line, count = _Line(noun), 0

    def show(_: str, before: int) -> None:
        nonlocal count
        count = before + 1
        line.show(count)

    try:
        yield show if progress else None
    finally:
        if progress:
            line.show(count, last=True)


def counted_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches, and show how many rows were taken."""
    line, count = _Line("rows"), 0
    try:
        for batch in batches:
            yield batch
            count += batch.num_rows
            line.show(count)
    finally:
        line.show(count, last=True)
