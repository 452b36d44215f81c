"""The local lookup files: what each process keeps, how well that serves it, and what dead ones left."""

from typing import Any

import click

from lsm_engine import LeftFiles, format_bytes
from lsm_engine import default_cache_root as default_root
from lsm_engine import processes_of_directory as processes_of
from lsm_engine import sweep_process_directories as sweep
from lsm_engine.cli.call import Call, pass_call
from lsm_engine.cli.output import code, counted, number, size, words
from lsm_engine.cli.values import utc_text
from lsm_engine.cli.verb import Verb


@click.command(
    cls=Verb, examples=["lsm cache", "lsm cache --json | jq .evictions", "lsm cache --sweep"]
)
@click.option("--directory", metavar="PATH", help="Of lookup files.  [default: this user's]")
@click.option("--sweep", "sweeps", is_flag=True, help="Remove what processes left that have died.")
@pass_call
def cache(call: Call, *, directory: str | None, sweeps: bool) -> None:
    """Show the local files that lookups have built: hits, misses, evictions by cause, bytes by table.

    Each process keeps its own, and writes its counters once a second while it is in use. Files that
    dead processes left go when the next process starts to look keys up, or now with --sweep. Workers
    of Spark keep theirs where Spark has its own (SPARK_LOCAL_DIRS): name one of those by --directory.
    """
    root = directory or default_root()
    found = processes_of(root)
    if sweeps:
        sweep(root)
        gone = [each for each in found if not each.is_alive]
        freed = sum(each.byte_count for each in gone)
        call.out.report(
            f"{counted(len(gone), 'dead process')} swept, {format_bytes(freed)} freed",
            {"swept": len(gone), "bytes": freed, "directory": root},
        )
        return
    columns = [
        code("pid"), words("state"), words("table"), number("files"), size("bytes", "size"),
        number("hits"), number("misses"), words("evicted"), words("seen", "seen (UTC)"),
    ]  # fmt: skip
    rows = [row for each in found for row in _rows(each)]
    if call.out.as_json:
        rows = [_facts(each) for each in found]
    call.out.rows(columns, rows, empty=f"no lookup files in {root}")


def _facts(left: LeftFiles) -> dict[str, Any]:
    """Return all that is known of one process's files."""
    state = left.state
    return {
        "directory": left.path,
        "alive": left.is_alive,
        "pid": state.get("pid"),
        "files": left.file_count,
        "bytes": left.byte_count,
        "hits": state.get("hits"),
        "misses": state.get("misses"),
        "built_bytes": state.get("built_bytes"),
        "evictions": state.get("evictions", {}),
        "tables": state.get("tables", {}),
        "at": _when(state.get("at_millis")),
    }


def _rows(left: LeftFiles) -> list[dict[str, Any]]:
    """Return a line for the process, and one below it for each table."""
    facts = _facts(left)
    evictions = facts["evictions"] if isinstance(facts["evictions"], dict) else {}
    tables = facts["tables"] if isinstance(facts["tables"], dict) else {}
    first = {
        **facts,
        "state": "alive" if left.is_alive else "dead",
        "table": counted(len(tables), "table"),
        "evicted": ", ".join(f"{count} {cause}" for cause, count in sorted(evictions.items())),
        "seen": facts["at"],
    }
    held = [
        {"table": name, "files": of.get("files"), "bytes": of.get("bytes")}
        for name, of in sorted(tables.items())
        if isinstance(of, dict)
    ]
    return [first, *held]


def _when(millis: object) -> str | None:
    return utc_text(millis) if isinstance(millis, int) else None
