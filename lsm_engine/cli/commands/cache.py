"""The local lookup files: what each process keeps, and what dead ones left; decoded manifests; compiled loops."""

from collections.abc import Sequence
from typing import Any

import click

from lsm_engine import (
    LeftFiles,
    clear_manifest_cache,
    compile_loops,
    format_bytes,
    manifest_cache,
)
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
    "lsm cache --compile",
)
@click.option(
    "--directory",
    metavar="PATH",
    help="Of lookup files, or for compiled loops.  [default: this user's]",
)
@click.option("--files", "by_file", is_flag=True,
              help="List lookup files: keys asked for, keys found, and why a file was removed.")  # fmt: skip
@click.option("--sweep", "sweeps", is_flag=True, help="Remove files of dead processes.")
@click.option("--manifests", "of_manifests", is_flag=True,
              help="Of decoded manifests, which all processes share; with --sweep they are removed.")  # fmt: skip
@click.option("--compile", "compiles", is_flag=True,
              help="Compile all loops over rows now, so that the processes of an image start warm.")  # fmt: skip
def cache(
    call: Call,
    *,
    directory: str | None,
    by_file: bool,
    sweeps: bool,
    of_manifests: bool,
    compiles: bool,
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

    Each loop over rows is compiled when a machine first needs it, and kept. An image, or an environment that
    a cluster ships, has all of them with --compile: some 20 seconds of CPU, once. A --directory for them is given to
    processes as NUMBA_CACHE_DIR.
    """
    if compiles:
        loops = compile_loops(directory)
        call.out.report(
            f"{counted(loops.loop_count, 'compiled loop')} in {loops.directory}, {loops.seconds:.1f} s",
            loops._asdict(),
        )
        return
    if of_manifests:
        _show_manifests(call, sweeps=sweeps)
        return
    root = directory or default_root()
    directories = processes_of(root)
    if sweeps:
        sweep(root)
        dead = [process_files for process_files in directories if not process_files.is_alive]
        freed = sum(process_files.byte_count for process_files in dead)
        call.out.report(
            f"{counted(len(dead), 'dead process')} swept, {format_bytes(freed)} freed",
            {"swept": len(dead), "bytes": freed, "directory": root},
        )
        return
    if by_file:
        call.out.rows(_FILE_COLUMNS, _files(directories), empty=f"no lookup files in {root}")
        return
    columns = [
        code("pid"), words("state"), words("table"), number("files"), size("bytes", "size"),
        number("hits"), number("misses"), words("evicted"), words("seen", "seen (UTC)"),
    ]  # fmt: skip
    rows = [row for process_files in directories for row in _rows(process_files)]
    if call.out.as_json:
        rows = [_facts(process_files) for process_files in directories]
    call.out.rows(columns, rows, empty=f"no lookup files in {root}")


def _show_manifests(call: Call, *, sweeps: bool) -> None:
    """Show the decoded manifests that processes share, or remove them."""
    manifests = clear_manifest_cache() if sweeps else manifest_cache()
    facts = {
        "directory": manifests.path,
        "files": manifests.file_count,
        "bytes": manifests.byte_count,
    }
    done = "removed" if sweeps else f"in {manifests.path}"
    size_text = format_bytes(manifests.byte_count)
    call.out.report(
        f"{counted(manifests.file_count, 'decoded manifest')}, {size_text}, {done}", facts
    )


_FILE_COLUMNS = [
    code("pid"), words("table"), words("file"), size("bytes", "size"), number("requests"),
    number("hits"), words("removal_cause", "removed"),
]  # fmt: skip


def _files(directories: Sequence[LeftFiles]) -> list[dict[str, Any]]:
    """Return a line for each lookup file that a process has published."""
    names = [column.name for column in _FILE_COLUMNS]
    listed = []
    for directory in directories:
        files = directory.state.get("lookup_files")
        of_process = files if isinstance(files, list) else []
        listed += [
            {**dict.fromkeys(names), **facts, "pid": directory.state.get("pid")}
            for facts in of_process
            if isinstance(facts, dict)
        ]
    return [{name: facts[name] for name in names} for facts in listed]


def _facts(directory: LeftFiles) -> dict[str, Any]:
    """Return all that is known of one process's files."""
    state = directory.state
    return {
        "directory": directory.path,
        "alive": directory.is_alive,
        "pid": state.get("pid"),
        "files": directory.file_count,
        "bytes": directory.byte_count,
        "hits": state.get("hits"),
        "misses": state.get("misses"),
        "built_bytes": state.get("built_bytes"),
        "evictions": state.get("evictions", {}),
        "tables": state.get("tables", {}),
        "at": _when(state.get("at_millis")),
    }


def _rows(directory: LeftFiles) -> list[dict[str, Any]]:
    """Return a line for the process, and one below it for each table."""
    facts = _facts(directory)
    evictions = facts["evictions"] if isinstance(facts["evictions"], dict) else {}
    tables = facts["tables"] if isinstance(facts["tables"], dict) else {}
    first = {
        **facts,
        "state": "alive" if directory.is_alive else "dead",
        "table": counted(len(tables), "table"),
        "evicted": ", ".join(f"{count} {cause}" for cause, count in sorted(evictions.items())),
        "seen": facts["at"],
    }
    table_rows = [
        {"table": name, "files": counts.get("files"), "bytes": counts.get("bytes")}
        for name, counts in sorted(tables.items())
        if isinstance(counts, dict)
    ]
    return [first, *table_rows]


def _when(millis: object) -> str | None:
    return utc_text(millis) if isinstance(millis, int) else None
