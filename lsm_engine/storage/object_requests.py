"""Requests to an object store, their retries, and their failures as errors.

A request that was not applied (409, 429, 503, no connection) is always sent again. A request that may have
been applied is sent again only if it is idempotent; a conditional create is not.
Waits double from 50 ms, with full jitter, to 20 s, for two minutes in all; for five seconds where the store has
never answered this process, as its address is likely to be wrong then."""

import contextlib
import os
import queue
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from enum import Enum
from importlib import import_module
from ipaddress import ip_address
from typing import Any, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from lsm_engine.base.errors import (
    CommitUnknownError,
    InvalidOptionError,
    LsmError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from lsm_engine.storage.clock import Clock, IdSource, SystemClock, SystemIds
from lsm_engine.storage.file_io import FileStatus, Noted
from lsm_engine.storage.location import StorageLocation
from lsm_engine.storage.options import AZURE, GCS, S3, StorageOptions, environment_mark
from lsm_engine.storage.remote import SharedClients

# -- Answers of object stores, from the classes and messages of the library's exceptions -----------
#
# The library reports a refusal and a conflict by one class, and many answers by no class of
# their own, so the status and the code in the message decide. Messages hold addresses, some
# with a signature: only status and code get into errors.


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
    "the store refuses this: it got no credentials (storage= or the variables of its environment), they have "
    "expired, or a policy lacks the permission; grant reading, writing, deleting and listing (without listing the store answers so for names that do not exist)"
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
_CONFLICT = 409
_BY_STATUS = {
    304: Answer.TAKEN,
    401: Answer.REFUSED,
    403: Answer.REFUSED,
    404: Answer.MISSING,
    405: Answer.UNSUPPORTED,
    408: Answer.UNKNOWN,
    _CONFLICT: Answer.CONFLICT,
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


# -- Clients of object stores: obstore's, from a location and storage options ----------------------
#
# One pair exists per bucket, options and environment, so that tables share connections
# (`SharedClients`).

_TIMEOUTS = {"connect_timeout": "5s", "read_timeout": "60s", "timeout": "10min"}
_ONCE = {"max_retries": 0, "retry_timeout": timedelta(0)}
_PATIENT = {
    "max_retries": 12,
    "retry_timeout": timedelta(minutes=2),
    "backoff": {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=20)},
}
_MEMORY = "memory"
_ADDRESS = re.compile(r"[a-z]+://[!-~]+")
_lock = threading.Lock()


class Clients:
    """The two clients of a bucket: `once` sends a request once, `patient` retries it.

    `endpoint` is the address of the store, for messages. `proven`: warehouses whose conditional creates have
    one winner. `looked_for`: warehouses whose marker was looked for. `has_answered`: whether the store has
    ever answered, so that its address is right.
    """

    def __init__(self, location: StorageLocation, options: StorageOptions) -> None:
        self.once, self.patient, self.endpoint = _pair(location, options)
        self.has_answered = location.scheme == _MEMORY
        self.proven: set[str] = set()
        self.looked_for: dict[str, Future[None]] = {}

    def renew(self, location: StorageLocation, options: StorageOptions, stale: Any) -> None:
        """Read the credentials again, unless `stale`, the refused client, has been replaced already.

        An environment that names another store since then is not followed.
        """
        with _lock:
            if self.once is not stale or location.scheme == _MEMORY:
                return
            once, patient, endpoint = _pair(location, options)
            if endpoint == self.endpoint:
                self.once, self.patient = once, patient


shared = SharedClients(Clients)


def _pair(location: StorageLocation, options: StorageOptions) -> tuple[Any, Any, str]:
    make = _MAKERS[location.scheme]
    try:
        once, endpoint = make(location, options, _ONCE)
        if location.scheme == _MEMORY:
            return once, once, endpoint
        return once, make(location, options, _PATIENT)[0], endpoint
    except (BaseError, ValueError, TypeError) as cause:
        if isinstance(cause, InvalidOptionError):
            raise
        raise to_configuration_error(cause, store=location.text) from None


def _s3(
    location: StorageLocation, options: StorageOptions, retries: Mapping[str, Any]
) -> tuple[Any, str]:
    settings = options.settings(S3)
    endpoint, path_style = s3_address(settings)
    config: dict[str, Any] = {
        "access_key_id": settings.get("access_key"),
        "secret_access_key": settings.get("secret_key"),
        "session_token": settings.get("session_token"),
        "region": settings.get("region"),
        # The signature leaves out the bodies of uploads in parts: hashing would double their time.
        "unsigned_payload": retries is _PATIENT or None,
    }
    if endpoint:
        config["virtual_hosted_style_request"] = not path_style
        config["endpoint"] = endpoint if path_style else _with_bucket(endpoint, location.authority)
    store = S3Store(
        location.authority,
        config=_without_none(config),
        client_options=_client_options(endpoint),
        retry_config=retries,
        credential_provider=_profile(settings["profile"]) if "profile" in settings else None,
    )
    return store, s3_shown(settings)


def s3_shown(settings: Mapping[str, str]) -> str:
    """Return the address of the store that options or the environment name."""
    return s3_address(settings)[0] or f"s3.{settings.get('region') or _aws_region()}.amazonaws.com"


def s3_address(settings: Mapping[str, str]) -> tuple[str, bool]:
    """Return the endpoint that options or the environment name, "" for Amazon's, and if the bucket is in the path.

    Raises InvalidOptionError for an endpoint that is no address.
    """
    endpoint = settings.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL_S3", "")
    endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL", "")
    if endpoint and "://" not in endpoint:
        endpoint = f"https://{endpoint}"
    # Most servers that are not Amazon's know no bucket by its host name.
    path_style = bool(endpoint) and _is_true(settings.get("path_style", "true"))
    if endpoint:
        host = _check_endpoint(endpoint, "s3.endpoint")
        _check_bucket_in_host(endpoint, host, path_style=path_style)
    return endpoint, path_style


def _check_endpoint(endpoint: str, option: str) -> str:
    """Return the host of an endpoint; raise InvalidOptionError for one that is no address.

    The library panics over some. A name and a password in it would be shown by the library's errors.
    """
    try:
        parts = urlsplit(endpoint)
        host, _ = parts.hostname, parts.port
    except ValueError:  # a port that is no number, or brackets that do not match
        host = None
    if not host or parts.scheme not in {"http", "https"} or not _ADDRESS.fullmatch(endpoint):
        raise InvalidOptionError(
            "an endpoint is an address such as 'https://storage.example:9000'",
            option=option,
            endpoint=endpoint,
        )
    if parts.username is not None:
        raise InvalidOptionError(
            "an endpoint holds no name and password; give keys by options of their own "
            "(s3.access-key and s3.secret-key, azure.account-key, gs.key-file)",
            option=option,
        )
    return host


def _check_bucket_in_host(endpoint: str, host: str, *, path_style: bool) -> None:
    if not path_style and _is_number(host):
        raise InvalidOptionError(
            "no bucket can stand before an address of numbers; leave s3.path.style.access at true, or "
            "name the host",
            option="s3.path.style.access",
            endpoint=endpoint,
        )


def _is_number(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _aws_region() -> str:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def _with_bucket(endpoint: str, bucket: str) -> str:
    scheme, _, host = endpoint.partition("://")
    return f"{scheme}://{bucket}.{host}"


def _profile(name: str) -> Any:
    try:
        session = import_module("boto3").Session(profile_name=name)
        provider = import_module("obstore.auth.boto3").Boto3CredentialProvider
    except ModuleNotFoundError as cause:
        raise UnsupportedError(
            "profiles (s3.profile) are read by boto3: pip install 'lsm-assets[aws]'",
            option="s3.profile",
        ) from cause
    return provider(session)


def _azure(
    location: StorageLocation, options: StorageOptions, retries: Mapping[str, Any]
) -> tuple[Any, str]:
    settings = options.settings(AZURE)
    container, _, host = location.authority.partition("@")
    account = settings.get("account") or host.partition(".")[0] or None
    endpoint = settings.get("endpoint", "")
    if endpoint:
        _check_endpoint(endpoint, "azure.endpoint")
    tenant = (
        settings.get("tenant_id")
        or urlsplit(settings.get("tenant_endpoint", "")).path.strip("/").partition("/")[0]
    )
    config = {
        "account_name": account,
        "account_key": settings.get("account_key"),
        "sas_key": settings.get("sas_token"),
        "client_id": settings.get("client_id"),
        "client_secret": settings.get("client_secret"),
        "tenant_id": tenant or None,
        "endpoint": endpoint or None,
    }
    store = AzureStore(
        container,
        config=_without_none(config),
        client_options=_client_options(endpoint),
        retry_config=retries,
    )
    return store, endpoint or f"{account}.blob.core.windows.net"


def _gcs(
    location: StorageLocation, options: StorageOptions, retries: Mapping[str, Any]
) -> tuple[Any, str]:
    settings = options.settings(GCS)
    endpoint = settings.get("endpoint", "")
    if endpoint:
        _check_endpoint(endpoint, "gs.endpoint")
    config = {
        "service_account": settings.get("key_file"),
        "bearer_token": settings.get("access_token"),
        "base_url": endpoint or None,
        "skip_signature": settings.get("auth_type", "").upper() == "UNAUTHENTICATED" or None,
    }
    store = GCSStore(
        location.authority,
        config=_without_none(config),
        client_options=_client_options(endpoint),
        retry_config=retries,
    )
    return store, endpoint or "storage.googleapis.com"


def _memory(location: StorageLocation, _: StorageOptions, __: Mapping[str, Any]) -> tuple[Any, str]:
    return MemoryStore(), f"{_MEMORY}:{location.authority}"


_Maker = Callable[[StorageLocation, StorageOptions, Mapping[str, Any]], tuple[Any, str]]
_MAKERS: Mapping[str, _Maker] = {
    **dict.fromkeys(S3.schemes, _s3),
    **dict.fromkeys(AZURE.schemes, _azure),
    **dict.fromkeys(GCS.schemes, _gcs),
    _MEMORY: _memory,
}


def _client_options(endpoint: str) -> dict[str, Any]:
    return {**_TIMEOUTS, "allow_http": endpoint.startswith("http://")}


def _without_none(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if value is not None}


def _is_true(text: str) -> bool:
    return text.strip().lower() in {"true", "1", "yes"}


# -- Requests to an object store, their retries, and their failures as errors ----------------------

T = TypeVar("T")

FAILURES = (BaseError, OSError, ValueError, NotImplementedError)
"""Exceptions of the library."""
_FIRST_WAIT_MILLIS = 50
_LONGEST_WAIT_MILLIS = 20_000
_IN_ALL_MILLIS = 120_000
_FIRST_ANSWER_MILLIS = 5_000


class Requests:
    """The requests of one FileIO. Any thread may use it."""

    def __init__(
        self,
        location: StorageLocation,
        options: StorageOptions,
        *,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        self.location = location
        self.options = options
        self.environment = environment_mark(location.scheme)
        self._clients: Clients | None = None
        self.clock: Clock = SystemClock() if clock is None else clock
        self.ids: IdSource = SystemIds() if ids is None else ids

    @property
    def clients(self) -> Clients:
        """The clients of this process, the same ones from the first use on."""
        shared.require_own_process(self.location)
        if self._clients is None:
            self._clients = shared.client_of(self.location, self.options, self.environment)
        return self._clients

    def for_location(self, location: StorageLocation) -> "Requests":
        """Return requests to another location of the same bucket, by the same clients."""
        requests = Requests(location, self.options, clock=self.clock, ids=self.ids)
        requests.environment, requests._clients = self.environment, self.clients
        return requests

    def send(self, verb: str, path: str, act: Callable[[Any], T], *, waits: bool = True) -> T:
        """Return the result of an idempotent request; `act` gets the client. Failures become LsmErrors.

        `waits` false: a throttled store is not waited for.
        """
        waiting = _Waiting(self)
        while True:
            client = self.clients.once
            try:
                result = act(client)
            except FAILURES as cause:
                answer = self._answer(cause)
                if answer in _AGAIN and waits and waiting.goes_on():
                    continue
                if answer is Answer.REFUSED and waiting.may_renew():
                    self.clients.renew(self.location, self.options, client)
                    continue
                raise to_error(path, cause, doing=verb, store=self.location.text) from None
            self.clients.has_answered = True
            return result

    def create(self, path: str, act: Callable[[Any], object], is_there: Callable[[], bool]) -> bool:
        """Return whether a conditional create won; False: the name is taken.

        `is_there` decides after a conflict that does not state its cause. Raises CommitUnknownError
        where the answer was lost, and where the name is taken after an attempt with an unclear end.
        """
        waiting = _Waiting(self)
        is_unclear = False
        while True:
            client = self.clients.once
            try:
                act(client)
            except FAILURES as cause:
                answer = self._answer(cause)
                if answer is Answer.CONFLICT and is_there():
                    answer = Answer.TAKEN
                if answer is Answer.TAKEN and not is_unclear:
                    return False
                if answer in (Answer.UNKNOWN, Answer.TAKEN):
                    raise self._unknown(path, "created") from None
                if answer in (Answer.NOT_APPLIED, Answer.CONFLICT) and waiting.goes_on():
                    # A conflict is with another request. A gateway that is busy may have passed this one on.
                    is_unclear = is_unclear or facts_of(cause)[0] != _CONFLICT
                    continue
                if answer is Answer.REFUSED and waiting.may_renew():
                    self.clients.renew(self.location, self.options, client)
                    continue
                raise to_error(path, cause, doing="PUT", store=self.location.text) from None
            return True

    def change(
        self, verb: str, path: str, act: Callable[[Any], object], look: Callable[[], "Outcome"]
    ) -> bool:
        """Return whether a request on condition was carried out. `verb`: PUT or DELETE, for errors.

        `act` may raise an LsmError instead of sending the request. `look` determines the outcome if the answer does not.
        Raises CommitUnknownError where a look does not show it either, StorageError where nothing was changed.
        """
        waiting = _Waiting(self)
        is_unclear = False
        while True:
            client = self.clients.once
            try:
                act(client)
            except LsmError as cause:
                # After a request without an answer no error proves that nothing was changed.
                if is_unclear:
                    raise self._unknown(path, "changed") from cause
                raise
            except FAILURES as cause:
                answer = self._answer(cause)
                if answer is Answer.REFUSED and waiting.may_renew():
                    self.clients.renew(self.location, self.options, client)
                    continue
                is_unclear = is_unclear or answer is Answer.UNKNOWN
                if answer in _CONDITION_FAILED and not waiting.has_waited:
                    return False
                outcome = self._outcome(path, answer, look)
                if outcome is not Outcome.UNCHANGED and not (
                    outcome is Outcome.LOST and is_unclear
                ):
                    return outcome is Outcome.DONE
                if outcome is Outcome.UNCHANGED and answer in _AGAIN and waiting.goes_on():
                    continue
                if is_unclear:
                    raise self._unknown(path, "changed") from None
                raise to_error(path, cause, doing=verb, store=self.location.text) from None
            else:
                return True

    def _outcome(self, path: str, answer: Answer, look: Callable[[], "Outcome"]) -> "Outcome":
        """Return the outcome of a conditional request. A refusal needs no look."""
        if answer not in _CONDITION_FAILED and answer is not Answer.UNKNOWN:
            return Outcome.UNCHANGED
        try:
            return look()
        except LsmError as cause:
            # The look had no answer either.
            raise self._unknown(path, "changed") from cause

    def _unknown(self, path: str, done: str) -> CommitUnknownError:
        return CommitUnknownError(
            f"the store did not report whether the file was {done}; look before trying again",
            path=path,
            store=self.location.text,
        )

    def _answer(self, cause: Exception) -> Answer:
        """Return the answer of a failure. A failure with a status proves that the store answers."""
        if facts_of(cause)[0] is not None:
            self.clients.has_answered = True
        return answer_of(cause)


class Outcome(Enum):
    """The outcome of a conditional request, by a look."""

    DONE = "done"
    UNCHANGED = "unchanged"
    """The expected content is still there: the request was not applied, or not yet."""
    LOST = "lost"
    """Another content is there, or none."""


_CONDITION_FAILED = frozenset({Answer.TAKEN, Answer.MISSING})
_AGAIN = frozenset({Answer.NOT_APPLIED, Answer.CONFLICT, Answer.UNKNOWN})


class _Waiting:
    """The retries of one request."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._clock = requests.clock
        self._ids = requests.ids
        self._started_millis: int | None = None
        self._longest = _FIRST_WAIT_MILLIS
        self._renewed = False
        self.has_waited = False

    def goes_on(self) -> bool:
        """Wait, and return whether to try again."""
        now = self._clock.now_millis()
        if self._started_millis is None:
            self._started_millis = now
        in_all = _IN_ALL_MILLIS if self._requests.clients.has_answered else _FIRST_ANSWER_MILLIS
        millis_left = in_all - (now - self._started_millis)
        if millis_left <= 0:
            return False
        self._clock.sleep_millis(min(1 + int(self._ids.fraction() * self._longest), millis_left))
        self._longest = min(2 * self._longest, _LONGEST_WAIT_MILLIS)
        self.has_waited = True
        return True

    def may_renew(self) -> bool:
        """Return whether credentials may be renewed: once per request."""
        first, self._renewed = not self._renewed, True
        return first


# -- A new object being written: one PUT for a small one, an upload in parts for a large one -------

PART_BYTES = 8 << 20
_PARTS_WAITING = 1


class _GivenUpError(Exception):
    """The writer aborted the upload."""


class ObjectOutput:
    """One object being written. It exists once `close` has returned, whole or not at all."""

    def __init__(
        self,
        write: Callable[[bytes], None],
        upload: Callable[[Iterator[bytes], Callable[[], int]], None],
    ) -> None:
        """`upload` gets the parts, and a function that returns their size in bytes; it raises the error of a part."""
        self._put = write
        self._upload = upload
        self._buffer = bytearray()
        self._written = 0
        self._parts: queue.Queue[bytes | None] | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._given_up = False
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether it is closed or aborted."""
        return self._closed

    def write(self, data: Any) -> int:
        """Append bytes; raises the error of an upload that has failed meanwhile."""
        if self._closed:
            raise ValueError("write to a closed file")
        view = memoryview(data).cast("B")
        self._buffer += view
        self._written += len(view)
        while len(self._buffer) >= PART_BYTES:
            part = bytes(memoryview(self._buffer)[:PART_BYTES])
            del self._buffer[:PART_BYTES]
            self._send(part)
        return len(view)

    def tell(self) -> int:
        """Return the bytes written so far."""
        return self._written

    def flush(self) -> None:
        """Do nothing: parts are sent once they are full."""

    def close(self) -> None:
        """Finish the object."""
        if self._closed:
            return
        self._closed = True
        last_part, self._buffer = bytes(self._buffer), bytearray()
        if self._thread is None:
            self._put(last_part)
            return
        if last_part:
            self._send(last_part)
        self._end()
        if self._failure is not None:
            raise self._failure

    def abort(self) -> None:
        """Give the object up. A started upload is aborted, so that no parts remain and are billed."""
        if self._closed:
            return
        self._closed = self._given_up = True
        self._buffer.clear()
        if self._thread is not None:
            with contextlib.suppress(LsmError):
                self._end()

    def _send(self, part: bytes) -> None:
        if self._thread is None:
            self._parts = queue.Queue(_PARTS_WAITING)
            self._thread = threading.Thread(target=self._run, name="lsm-upload", daemon=True)
            self._thread.start()
        self._hand_over(part)
        if self._failure is not None:
            self._closed = True
            raise self._failure

    def _hand_over(self, part: bytes | None) -> None:
        """Wait for a place in the queue, as long as the upload lives."""
        assert self._parts is not None
        assert self._thread is not None
        while self._thread.is_alive():
            with contextlib.suppress(queue.Full):
                self._parts.put(part, timeout=0.1)
                return

    def _end(self) -> None:
        assert self._thread is not None
        self._hand_over(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._upload(self._each_part(), self.tell)
        except _GivenUpError:  # `abort` has raised it in the upload
            pass
        except BaseException as failure:  # noqa: BLE001 -- raised where the writer is
            self._failure = failure

    def _each_part(self) -> Iterator[bytes]:
        assert self._parts is not None
        while (part := self._parts.get()) is not None:
            yield part
        if self._given_up:
            raise _GivenUpError


# -- Single calls of the library to an object store, and its answers as values ---------------------

_NOTE = "lsmnote"  # a name of metadata that every store takes


def read_start(client: Any, key: str, length: int | None) -> bytes:
    """Return a file's first bytes; the rest of a larger file is not fetched."""
    answer = obstore.get(client, key)
    if length is None or answer.meta["size"] <= length:
        note = answer.attributes.get(_NOTE, "")
        if not note:
            return bytes(answer.bytes())
        data = Noted(answer.bytes())
        data.note = note
        return data
    pieces = bytearray()
    for piece in answer.stream(min_chunk_size=min(length, PART_BYTES)) if length else ():
        pieces += piece
        if len(pieces) >= length:
            break
    return bytes(pieces[:length])


def part_of(data: bytes, offset: int, length: int | None) -> bytes:
    """Return a range of a file's bytes; all of them with their note."""
    end = len(data) if length is None else offset + length
    return data if offset == 0 and end >= len(data) else data[offset:end]


def read_tagged(client: Any, key: str) -> tuple[bytes, str | None]:
    """Return a file's bytes and the tag of the content."""
    answer = obstore.get(client, key)
    return bytes(answer.bytes()), tag_of(answer.meta)


def put_object(
    client: Any, key: str, data: bytes, mode: Any = "overwrite", *, note: str = ""
) -> str | None:
    """Write an object by one request; return the tag of its content. `note`: becomes metadata."""
    attributes: Any = {_NOTE: note} if note else None
    return tag_of(
        obstore.put(client, key, data, mode=mode, use_multipart=False, attributes=attributes)
    )


def tag_of(meta: Any) -> str | None:
    """Return the tag in an answer or a listing, without quotes: some stores quote it in one of the two."""
    tag = meta.get("e_tag")
    return tag.strip('"') if tag else None


def delete_objects(client: Any, keys: Sequence[str]) -> None:
    """Delete objects by one request; missing ones are no error."""
    try:
        obstore.delete(client, keys if len(keys) > 1 else keys[0])
    except FAILURES as cause:
        # A missing object is deleted, as was asked.
        if len(keys) > 1 or answer_of(cause) is not Answer.MISSING:
            raise


def status_of(path: str, meta: Any) -> FileStatus:
    """Return the status of an object from a listing or a HEAD."""
    return FileStatus(
        path=path,
        size=meta["size"],
        # Google lists fractions of a second, which the answer to a HEAD lacks.
        modified_millis=1000 * int(meta["last_modified"].timestamp()),
        is_directory=False,
        tag=tag_of(meta),
    )


def entries_of(listing: Any, key: str, path_of: Callable[[str], str]) -> list[FileStatus]:
    """Return the objects and common prefixes in the listing of a directory, by name."""
    # Consoles create an object named as the directory and a slash, which the library strips.
    objects = (entry for entry in listing["objects"] if entry["path"] != key)
    files = [status_of(path_of(entry["path"]), entry) for entry in objects]
    directories = [
        FileStatus(path=path_of(prefix), size=0, modified_millis=0, is_directory=True)
        for prefix in listing["common_prefixes"]
    ]
    return sorted([*files, *directories], key=lambda status: status.path)
