"""Errors between tasks and the driver: as values where work can go on, as a marked line where not.

A task that fails for a reason of the data (a null key, a corrupt file) answers with the error: trying
it again would change nothing, and the other tasks' answers are needed, so that their files can be
deleted. Anything else is raised in the task, so that Spark tries it again elsewhere.
"""

import json
import re
import traceback
from typing import Any

from lsm_engine.base import errors
from lsm_engine.base.errors import CommitUnknownError, ErrorKind, LsmError, StorageError

_MARK = "lsm-error "
_MARKED = re.compile(re.escape(_MARK) + r"(\{.*\})")
_CRASH = re.compile(r"most recent failure: .*?\): (?:[\w.$]+: )?([^\n]+)")
_NO_WORKER = re.compile(r"Error from python worker:\n(?:  .*\n)*?  (.*)\nPYTHONPATH was")
_MISSING = re.compile(r"No module named '?(lsm_engine|pyarrow|pyspark|numpy)\b")
_VERSIONS = re.compile(
    r"PYTHON_VERSION_MISMATCH|Python in worker has different version", re.IGNORECASE
)
_JVM_FRAMES = re.compile(r"^\s+(?:at \S+\(.*\)|\.\.\. \d+ more)$\n?", re.MULTILINE)
_LAST_LINE = re.compile(r"^(\w[\w.]*(?:Error|Exception|Exit|Interrupt)\b.*)$", re.MULTILINE)


class TaskFailedError(LsmError):
    """Work on an executor failed for a reason of its own: read the cause, then try again."""

    default_kind = ErrorKind.STORAGE


class ShippedError(Exception):
    """Carries an LsmError out of a task that Spark may try again, as one marked line of text."""

    def __init__(self, error: LsmError) -> None:
        super().__init__(_MARK + encode_error(error))


def is_final(error: LsmError) -> bool:
    """Whether trying again elsewhere is known to end the same way."""
    return not isinstance(error, StorageError | CommitUnknownError | TaskFailedError)


def encode_error(error: LsmError) -> str:
    """Return an error as one line of JSON: its class, message, kind, facts and place."""
    frames = traceback.extract_tb(error.__traceback__)
    return json.dumps(
        {
            "type": type(error).__name__,
            "message": error.message,
            "kind": error.kind.value,
            "facts": {name: _plain(value) for name, value in error.facts.items()},
            "place": f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "",
        }
    )


def decode_error(text: str, *, label: str) -> LsmError:
    """Return the error that `encode_error` wrote, with a note that names the work that raised it."""
    stored: dict[str, Any] = json.loads(text)
    found = getattr(errors, stored["type"], TaskFailedError)
    cls: type[LsmError] = found if issubclass(found, LsmError) else TaskFailedError
    error = cls(stored["message"], kind=ErrorKind(stored["kind"]), **stored["facts"])
    error.add_note(f"in a Spark task of {label!r}, at {stored['place']}")
    return error


def from_spark(error: Exception, *, label: str) -> LsmError:
    """Return what a failed job is about: the LsmError that a task shipped, or a TaskFailedError
    with the last line of the task's own error and its traceback in a note.
    """
    text = str(error)
    shipped = _MARKED.search(text)
    if shipped is not None:
        return decode_error(shipped[1], label=label)
    lines: list[str] = _LAST_LINE.findall(text)
    crash = _NO_WORKER.search(text) or _CRASH.search(text)
    reason = crash[1] if crash else lines[-1] if lines else text.partition("\n")[0]
    reason = f"{reason.strip(' :')}{remedy(text)}"
    failed = TaskFailedError(f"a Spark task of {label!r} failed: {reason}", work=label)
    failed.add_note(_JVM_FRAMES.sub("", text).strip())
    return failed


def remedy(text: str) -> str:
    """Return what to do about an executor's Python, where that is what is wrong."""
    missing = _MISSING.search(text)
    if missing is not None:
        problem = f"; the executors' Python has no {missing[1]}: install lsm-assets[spark] there"
    elif _VERSIONS.search(text):
        problem = "; executors run another version of Python than the driver"
    else:
        return ""
    return (
        f"{problem}, and name it before the session starts, as PYSPARK_PYTHON or spark.pyspark.python"
        " (docs/spark-clusters.md)"
    )


def _plain(value: object) -> object:
    """Return a fact as JSON holds it; what JSON cannot hold travels as its repr."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return repr(value)
