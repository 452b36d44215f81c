"""The exit codes of `lsm`, by class of failure."""

from lsm_engine import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    CorruptFileError,
    ErrorKind,
    InvalidInputError,
    InvalidOptionError,
    LsmError,
    NotFoundError,
    StorageError,
    UnsafePathError,
    UnsupportedError,
)

REFUSED = 1
INTERRUPTED = 130
INTERNAL = 70
BROKEN_PIPE = 141
OTHER = 12

EXIT_CODES: tuple[tuple[type[LsmError], int, str], ...] = (
    (
        NotFoundError,
        3,
        "no such database, table, snapshot, tag, branch or column to read (or it has expired)",
    ),
    (AlreadyExistsError, 4, "the name is taken"),
    (InvalidOptionError, 5, "an option or setting is wrong"),
    (
        InvalidInputError,
        5,
        "rows, names, a filter or an input file are wrong or missing; nothing was written",
    ),
    (CommitConflictError, 6, "another commit came first; nothing is visible, run it again"),
    (CommitUnknownError, 7, "it may or may not have been committed; look before running it again"),
    (UnsupportedError, 8, "a feature of the format that this version refuses"),
    (CorruptFileError, 9, "stored bytes are wrong, or a file of the table is missing"),
    (StorageError, 10, "the disk or the store failed"),
    (UnsafePathError, 11, "a path leaves the table's directory"),
    (LsmError, OTHER, "any other failure"),
)


def exit_code_of(error: LsmError) -> int:
    """Return the exit code of an error's class."""
    if error.kind is ErrorKind.NO_SUCH_FILE and "path" in error.facts:
        # A file that the table names is damage, not a name that may come to be.
        return exit_code_of(CorruptFileError(error.message))
    return next(number for kind, number, _ in EXIT_CODES if isinstance(error, kind))


def exit_code_lines() -> list[tuple[str, str]]:
    """Return exit codes and their meanings for the help page."""
    meanings: dict[int, list[str]] = {
        0: ["done"],
        REFUSED: [
            "'doctor', 'verify' or 'forget' found something, or you answered no to a question"
        ],
        2: ["the command line is wrong"],
    }
    for _, number, meaning in EXIT_CODES:
        meanings.setdefault(number, []).append(meaning)
    meanings[INTERNAL] = ["a bug in lsm; --debug shows where"]
    meanings[INTERRUPTED] = ["interrupted by Ctrl-C"]
    meanings[BROKEN_PIPE] = ["the reader of the output closed the pipe"]
    return [(str(number), "; ".join(meaning)) for number, meaning in sorted(meanings.items())]
