"""The local lookup files: what each process keeps, how well that serves it, and what dead ones left; decoded manifests."""

from collections.abc import Sequence
from typing import Any

import click

from lsm_engine import LeftFiles, clear_manifest_cache, format_bytes, manifest_cache
from lsm_engine import default_cache_root as default_root
from lsm_engine import processes_of_directory as processes_of
from lsm_engine import sweep_process_directories as sweep
from lsm_engine.cli.call import Call
from lsm_engine.cli.output import code, counted, number, size, words
from lsm_engine.cli.safe_text import utc_text
from lsm_engine.cli.verb import verb


@verb(
    "lsm cache",
    "lsm cache --files",
    "lsm cache --json | jq .evictions",
    "lsm cache --sweep",
    "lsm cache --manifests",
)
@click.option("--directory", metavar="PATH", help="Of lookup files.  [default: this user's]")
@click.option("--files", "by_file", is_flag=True,
              help="List lookup files: keys asked for, keys found, and why a file was removed.")  # fmt: skip
@click.option("--sweep", "sweeps", is_flag=True, help="Remove what processes left that have died.")
@click.option("--manifests", "of_manifests", is_flag=True,
              help="Of decoded manifests, which all processes share; with --sweep they are removed.")  # fmt: skip
def cache(
    call: Call, *, directory: str | None, by_file: bool, sweeps: bool, of_manifests: bool
) -> None:
    """Show the local files that lookups have built: hits, misses, evictions by cause, bytes by table.

    With --files, of each process the hundred lookup files that were asked most, and the last hundred that
    were removed: explicit (the data file left the levels, or the reader closed), replaced (found
    damaged), expired (idle) or size. Each process keeps its own, and writes its counters once a second while it is in use. Files that
    dead processes left go when the next process starts to look keys up, or now with --sweep.
    Workers of Spark keep theirs where Spark has its own (SPARK_LOCAL_DIRS): name one of those by
    --directory.

    Large manifests that were asked for twice are kept decoded for all processes of a user (option
    manifest.cache-max-disk-size): --manifests tells where, how many and how large.
    """
    if of_manifests:
        _show_manifests(call, sweeps=sweeps)
        return
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
    if by_file:
        call.out.rows(_FILE_COLUMNS, _files(found), empty=f"no lookup files in {root}")
        return
    columns = [
        code("pid"), words("state"), words("table"), number("files"), size("bytes", "size"),
        number("hits"), number("misses"), words("evicted"), words("seen", "seen (UTC)"),
    ]  # fmt: skip
    rows = [row for each in found for row in _rows(each)]
    if call.out.as_json:
        rows = [_facts(each) for each in found]
    call.out.rows(columns, rows, empty=f"no lookup files in {root}")


def _show_manifests(call: Call, *, sweeps: bool) -> None:
    """Show the decoded manifests that processes share, or remove them."""
    found = clear_manifest_cache() if sweeps else manifest_cache()
    facts = {"directory": found.path, "files": found.file_count, "bytes": found.byte_count}
    done = "removed" if sweeps else f"in {found.path}"
    size_text = format_bytes(found.byte_count)
    call.out.report(f"{counted(found.file_count, 'decoded manifest')}, {size_text}, {done}", facts)


_FILE_COLUMNS = [
    code("pid"), words("table"), words("file"), size("bytes", "size"), number("requests"),
    number("hits"), words("removal_cause", "removed"),
]  # fmt: skip


def _files(found: Sequence[LeftFiles]) -> list[dict[str, Any]]:
    """Return a line for each lookup file that a process has published."""
    names = [column.name for column in _FILE_COLUMNS]
    listed = []
    for left in found:
        files = left.state.get("lookup_files")
        of_process = files if isinstance(files, list) else []
        listed += [
            {**dict.fromkeys(names), **each, "pid": left.state.get("pid")}
            for each in of_process
            if isinstance(each, dict)
        ]
    return [{name: each[name] for name in names} for each in listed]


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
