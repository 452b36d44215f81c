"""Answers of object stores, from the classes and messages of the library's exceptions.

The library reports a refusal and a conflict by one class, and many answers by no class of their own, so
the status and the code in the message decide. Messages hold addresses, some with a signature: only status
and code get into errors.
"""

import re
from enum import Enum
from typing import Any

from lsm_engine.base.errors import (
    InvalidOptionError,
    LsmError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)


class Answer(Enum):
    """The outcome of a request, as far as it is known."""

    MISSING = "missing"
    TAKEN = "taken"
    REFUSED = "refused"
    """No permission, or credentials that have expired."""
    NOT_APPLIED = "not applied"
    """Throttled, in conflict with another request, or never sent: send it again."""
    CONFLICT = "conflict"
    """A conflict that does not state which: the name may be taken."""
    UNKNOWN = "unknown"
    """No answer, or one of failure, after the request was sent."""
    UNSUPPORTED = "unsupported"
    OUT_OF_RANGE = "out of range"
    FAILED = "failed"


# Of a batch the answer for one object stands in parentheses: a status on Azure, a code on S3.
_STATUS = re.compile(r"(?:status code|\(code): (\d{3})\b")
_CODE = re.compile(r"(?:<[Cc]ode>|\(code: )([A-Za-z][A-Za-z0-9]{0,59})[<)]")
_NO_CONTAINER = frozenset({"NoSuchBucket", "ContainerNotFound", "FilesystemNotFound"})
_REFUSED = frozenset(
    {"ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId",
     "RequestTimeTooSkewed", "AuthenticationFailed", "AccessDenied"}
)  # fmt: skip
_REFUSAL = (
    "the store refuses this: credentials have expired, or a policy lacks the permission; grant reading, "
    "writing, deleting and listing (without listing the store answers so for names that do not exist)"
)
_REFUSALS = {
    "SignatureDoesNotMatch": "the store refuses this: the secret key is not that of the access key",
    "InvalidAccessKeyId": "the store refuses this: it does not know the access key",
    "ExpiredToken": "the store refuses this: the session token has expired; get new credentials",
    "InvalidToken": "the store refuses this: the session token is not one of the access key",
    "RequestTimeTooSkewed": "the store refuses this: the clock of this machine is wrong; set it",
}
"""By the code of the answer, where that names what is wrong."""
_OTHER_REGION = frozenset({"AuthorizationHeaderMalformed", "PermanentRedirect"})
_NO_ADDRESS = "redirect without LOCATION"  # in what the library raises for a 301 of S3
_NOT_APPLIED = frozenset({"ConditionalRequestConflict", "OperationAborted", "SlowDown"})
_TAKEN = frozenset({"BlobAlreadyExists", "PathAlreadyExists", "PreconditionFailed"})
_BY_STATUS = {
    304: Answer.TAKEN,
    401: Answer.REFUSED,
    403: Answer.REFUSED,
    404: Answer.MISSING,
    405: Answer.UNSUPPORTED,
    408: Answer.UNKNOWN,
    409: Answer.CONFLICT,
    412: Answer.TAKEN,
    416: Answer.OUT_OF_RANGE,
    429: Answer.NOT_APPLIED,
    501: Answer.UNSUPPORTED,
    503: Answer.NOT_APPLIED,
}
_BY_CLASS = {
    "AlreadyExistsError": Answer.TAKEN,
    "PreconditionError": Answer.TAKEN,
    "NotModifiedError": Answer.TAKEN,
    "PermissionDeniedError": Answer.REFUSED,
    "UnauthenticatedError": Answer.REFUSED,
    "NotSupportedError": Answer.UNSUPPORTED,
    "NotImplementedError": Answer.UNSUPPORTED,
}


def answer_of(cause: Exception) -> Answer:
    """Return the answer that an exception of the library reports."""
    status, code = facts_of(cause)
    if code in _REFUSED:
        return Answer.REFUSED
    if code in _NOT_APPLIED:
        return Answer.NOT_APPLIED
    if code in _TAKEN:
        return Answer.TAKEN
    if status is not None:
        return _BY_STATUS.get(status, Answer.UNKNOWN if status >= 500 else Answer.FAILED)
    if isinstance(cause, FileNotFoundError):
        return Answer.MISSING
    text = str(cause)
    by_class = _BY_CLASS.get(type(cause).__name__)
    if by_class is not None:
        return by_class
    if "kind: Connect" in text or "dns error" in text:
        return Answer.NOT_APPLIED
    if "HTTP error" in text or "timed out" in text or "HttpError" in text:
        return Answer.UNKNOWN
    if re.search(r"[Rr]ange|out of bounds", text):
        return Answer.OUT_OF_RANGE
    return Answer.FAILED


def facts_of(cause: Exception) -> tuple[int | None, str]:
    """Return the status of an answer, and its code, "" without one."""
    text = str(cause)
    status, code = _STATUS.search(text), _CODE.search(text)
    return (None if status is None else int(status.group(1))), "" if code is None else code.group(1)


def to_error(path: str, cause: Exception, *, doing: str, store: str) -> LsmError:
    """Return the error to raise, `from None`: the cause may show secrets.

    `doing`: the request, such as "GET". `store`: the location's text.
    """
    status, code = facts_of(cause)
    facts: dict[str, Any] = {"path": path, "store": store, "request": doing}
    if status is not None:
        facts["status"] = status
    if code:
        facts["code"] = code
    if code in _NO_CONTAINER:
        return StorageError("there is no such bucket or container; create it", **facts)
    if code in _OTHER_REGION or _NO_ADDRESS in str(cause):
        return StorageError(
            "the bucket is in another region than requests are signed for; set s3.region", **facts
        )
    match answer_of(cause):
        case Answer.MISSING:
            return NotFoundError("no such file", path=path, store=store)
        case Answer.REFUSED:
            return StorageError(_REFUSALS.get(code, _REFUSAL), **facts)
        case Answer.NOT_APPLIED if status is None:
            return StorageError(
                "the store cannot be reached; is its address right (s3.endpoint and its kin), and is it "
                "running?",
                **facts,
            )
        case Answer.NOT_APPLIED | Answer.CONFLICT:
            return StorageError("the store is busy; try again later", **facts)
        case Answer.UNSUPPORTED:
            return UnsupportedError("the store does not offer this request; use another", **facts)
        case Answer.UNKNOWN:
            return StorageError("the store did not answer, or failed; try again later", **facts)
        case Answer.TAKEN | Answer.OUT_OF_RANGE | Answer.FAILED:
            return StorageError(f"the store refused a request: {_reason(cause)}", **facts)


def to_configuration_error(cause: Exception, *, store: str) -> LsmError:
    """Return the error of a client that cannot be made."""
    return InvalidOptionError(
        f"no client can be made with these storage options: {_reason(cause)}", store=store
    )


def _reason(cause: Exception) -> str:
    """Return the first line of a message, without addresses."""
    line = (str(cause) or type(cause).__name__).partition("\n")[0]
    return re.sub(r"\bhttps?://\S+", "<address>", line)[:300]
