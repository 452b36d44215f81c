"""What other command lines call what `lsm` does, and what is typed instead of a verb."""

import difflib
from collections.abc import Iterable

ELSEWHERE = {
    **dict.fromkeys(("ls", "list", "list-tables", "table"), "lsm tables"),
    **dict.fromkeys(("database", "namespaces", "schemas"), "lsm databases"),
    **dict.fromkeys(("describe", "desc", "info", "columns"), "lsm show schema TABLE"),
    **dict.fromkeys(("history", "log", "versions", "commits"), "lsm show snapshots TABLE"),
    **dict.fromkeys(("read", "cat", "print", "dump"), "lsm scan TABLE"),
    **dict.fromkeys(("head", "tail", "limit", "preview", "sample"), "lsm scan TABLE --limit 10"),
    **dict.fromkeys(
        ("select", "query", "sql", "shell"),
        "lsm scan TABLE --columns a,b --where \"a > 1\"; for SQL, DuckDB or Spark: docs/python.md",
    ),
    **dict.fromkeys(("get", "find", "key"), "lsm lookup TABLE"),
    **dict.fromkeys(("put", "write", "load", "add", "copy", "save"), "lsm upsert TABLE FILES, or lsm import TABLE FOLDER"),
    **dict.fromkeys(("convert", "migrate"), "lsm import TABLE FOLDER --link"),
    **dict.fromkeys(("rm", "remove", "drop-table", "delete-table"), "lsm drop TABLE, or lsm delete TABLE --where ..."),
    **dict.fromkeys(("mv", "rename-table"), "lsm rename OLD NEW"),
    **dict.fromkeys(("optimize", "zorder", "z-order"), "lsm compact TABLE"),
    **dict.fromkeys(
        ("vacuum", "cleanup", "gc", "clean"),
        "lsm expire TABLE for old snapshots, lsm orphans TABLE for files that nothing names",
    ),
    **dict.fromkeys(("restore", "checkout", "reset", "revert", "undo"), "lsm rollback TABLE"),
    **dict.fromkeys(("add-column", "drop-column", "rename-column"), "lsm alter TABLE"),
    **dict.fromkeys(("changes", "cdc", "cdf", "diff"), "lsm changelog TABLE"),
    **dict.fromkeys(("tags", "refs"), "lsm tag list TABLE"),
    "branches": "lsm branch list TABLE",
    **dict.fromkeys(("check", "fsck", "status", "health"), "lsm doctor, or lsm verify TABLE"),
    **dict.fromkeys(("serve", "web", "dashboard"), "lsm ui"),
    **dict.fromkeys(("init", "new", "make"), "lsm create TABLE COLUMNS"),
}  # fmt: skip


def no_such_command(group: str, name: str, candidates: Iterable[str]) -> str:
    """Return the message for a word that is no verb of a group: what to type in its place."""
    names = list(candidates)
    if group == "lsm" and name in ELSEWHERE:
        return f"No such command {name!r}: use {ELSEWHERE[name]}"
    if group != "lsm" and ("." in name or "/" in name):
        first = "snapshots" if "snapshots" in names else names[0]
        return f"No such command {name!r}: first what is asked for, such as {group} {first} {name}"
    matches = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"did you mean {matches[0]!r}?" if matches else f"{group} --help lists what there is"
    return f"No such command {name!r}; {hint}"
