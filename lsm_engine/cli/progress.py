"""Long work on stderr: rows that were read, buckets that were compacted. Nothing when piped or quiet."""

import getpass
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from lsm_engine import (
    CommitMessage,
    Discard,
    LocalExecutor,
    RowFiles,
    SystemClock,
    SystemIds,
    Table,
    provenance_properties,
)
from lsm_engine import LineageInput as Input
from lsm_engine import LineageRun as Run
from lsm_engine.cli.call import STANDARD_STREAM, Call
from lsm_engine.cli.exit_codes import INTERRUPTED
from lsm_engine.cli.output import counted
from lsm_engine.cli.safe_text import neutral

T = TypeVar("T")

INPUTS_MAX = 100
"""Input files that a commit records; of thousands it records the first ones as a sample."""


class Interrupted(click.ClickException):
    """Ctrl-C, with what it means for the table."""

    exit_code = INTERRUPTED

    def show(self, file: Any = None) -> None:
        """Print the message on stderr."""
        click.echo(f"lsm: {neutral(self.message)}", err=True, file=file)


@contextmanager
def writing(
    table: Table,
    kind: str,
    files: Sequence[str] = (),
    commit_user: str | None = None,
    commit_identifier: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield who commits, for a verb of the table, with the run and its files for the lineage.

    On Ctrl-C the message states whether the commit is there or not.
    """
    if (commit_user is None) != (commit_identifier is None):
        raise click.UsageError("--commit-user and --commit-identifier go together")
    run_id = f"lsm-{SystemIds().new_id()}"
    user = commit_user or run_id
    number = {} if commit_identifier is None else {"commit_identifier": commit_identifier}
    run = Run(
        run_id=run_id,
        engine="local",
        kind=kind,
        user=_user(),
        started_millis=SystemClock().now_millis(),
    )
    inputs = [Input(dataset=_dataset(path)) for path in files[:INPUTS_MAX]]
    before = table.latest_snapshot()
    try:
        yield {"commit_user": user, "properties": provenance_properties(run, inputs), **number}
    except KeyboardInterrupt:
        first = 1 if before is None else before.id + 1
        landed = [
            snapshot
            for snapshot in table.snapshots()
            if snapshot.id >= first and snapshot.commit_user == user
        ]
        if landed:
            text = f"stopped, but after the commit: snapshot {landed[-1].id} is there and complete"
        else:
            text = "stopped before the commit; the table is as it was"
        raise Interrupted(text) from None


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # no name for this user id, as in some containers
        return None


def _dataset(path: str) -> str:
    return "stdin" if path == STANDARD_STREAM else Path(path).absolute().as_uri()


@contextmanager
def _bars(call: Call, *columns: Any) -> Iterator[Progress]:
    console = Console(file=sys.stderr)
    shown = console.is_terminal and not call.quiet
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        yield progress


@contextmanager
def row_progress(call: Call, source: RowFiles, label: str) -> Iterator["CountedRows"]:
    """Yield the rows of a source, counted as they are taken."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=28),
        TextColumn("{task.completed:,.0f} rows"),
        TimeElapsedColumn(),
    )
    with _bars(call, *columns) as progress:
        yield CountedRows(source, progress, progress.add_task(label, total=source.row_count))
    if source.rejected_count:
        call.out.note(f"{counted(source.rejected_count, 'line')} left out")


@contextmanager
def file_progress(
    call: Call, label: str, noun: str = "files"
) -> Iterator[Callable[[str, int], None]]:
    """Yield what takes the name of each thing that has been read, and how many were read before."""
    columns = (
        TextColumn("{task.description}"),
        TextColumn(f"{{task.completed:,.0f}} {noun} read"),
        TimeElapsedColumn(),
    )
    with _bars(call, *columns) as progress:
        task = progress.add_task(label, total=None)
        yield lambda _, before: progress.update(task, completed=before + 1)


class CountedRows:
    """`reader` gives a source's rows; `count` is how many of them were taken, `rejected_count` of lines left out."""

    def __init__(self, source: RowFiles, progress: Progress, task: TaskID) -> None:
        self.count = 0
        self._source = source
        self._progress = progress
        self._task = task
        self.reader = pa.RecordBatchReader.from_batches(source.reader.schema, self._batches())

    @property
    def rejected_count(self) -> int:
        """Lines that could not be read."""
        return self._source.rejected_count

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._source.reader:
            yield batch
            self.count += batch.num_rows
            self._progress.update(self._task, completed=self.count)
        self._progress.update(self._task, description="Committing", total=self.count)


class BucketProgress(LocalExecutor):
    """The local executor, showing how far a compaction is: bytes of the buckets that are done."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self._call = call
        self.bucket_count = 0
        self.size_bytes = 0

    def messages(
        self,
        work: Callable[[T], CommitMessage | None],
        items: Sequence[T],
        *,
        label: str,
        discard: Discard,
        is_remote: bool = False,
    ) -> list[CommitMessage]:
        """Run the work on this machine's cores, one step of the bar per bucket."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            TextColumn("{task.fields[done]} of {task.fields[count]} buckets"),
            TimeElapsedColumn(),
        )
        messages: list[CommitMessage] = []
        sizes = [int(getattr(item, "size_bytes", 0)) for item in items]
        self.bucket_count += len(items)
        self.size_bytes += sum(sizes)
        with _bars(self._call, *columns) as progress:
            finished = self.one_by_one(work, items, discard=discard, is_remote=is_remote)
            # Even a bucket whose files are only moved is a step that can be seen.
            total = sum(sizes) + len(items)
            task = progress.add_task(label, total=total, done=0, count=len(items))
            for done, message in enumerate(finished):
                progress.update(task, advance=sizes[done] + 1, done=done + 1)
                if message is not None:
                    messages.append(message)
        return messages
