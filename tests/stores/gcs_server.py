"""Google Cloud Storage for tests: the part of its XML API that clients of objects use, in memory.

No emulator that registries have offers it: they speak the JSON API, and refuse or ignore a PUT with
`x-goog-if-generation-match`. Written from Google's reference of the XML API: objects (PUT, GET with ranges, HEAD,
DELETE, each with the generation's condition), listings of version 2, uploads in parts, errors as documents.
One lock makes each request atomic. Bearer tokens are checked.
"""

import hashlib
import itertools
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import time
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.stores.servers import BUCKET, StoreServer

TOKEN = "a-token-that-opens-nothing-else"
_LEAST_PART = 5 << 20
_PAGE = 1000
_MESSAGES = {
    "AuthenticationRequired": 401,
    "NoSuchBucket": 404,
    "NoSuchKey": 404,
    "NoSuchUpload": 404,
    "EntityTooSmall": 400,
    "InvalidPart": 400,
    "InvalidArgument": 400,
    "MethodNotAllowed": 405,
    "PreconditionFailed": 412,
    "InvalidRange": 416,
}


class RefusedError(Exception):
    """An answer that is an error; its code decides the status."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """One generation of an object."""

    data: bytes
    generation: int
    stamp: float = field(default_factory=time)

    @property
    def headers(self) -> dict[str, str]:
        return {
            "ETag": f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}"',
            "Last-Modified": formatdate(self.stamp, usegmt=True),
            "x-goog-generation": str(self.generation),
            "x-goog-metageneration": "1",
            "x-goog-stored-content-length": str(len(self.data)),
            "Accept-Ranges": "bytes",
        }


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A status, headers and a body."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class Bucket:
    """Objects and uploads of one bucket."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, Stored] = {}
        self.uploads: dict[str, tuple[str, dict[int, bytes]]] = {}
        self._numbers = itertools.count(1)

    def put(self, key: str, data: bytes, headers: Mapping[str, str]) -> Reply:
        with self.lock:
            self._require(key, headers)
            return Reply(headers=self._keep(key, data).headers)

    def get(self, key: str, headers: Mapping[str, str]) -> Reply:
        with self.lock:
            found = self._found(key)
            self._require(key, headers)
        size, wanted = len(found.data), headers.get("range")
        if wanted is None:
            return Reply(body=found.data, headers=found.headers)
        start, end = _range(wanted, size)
        place = {"Content-Range": f"bytes {start}-{end - 1}/{size}"}
        return Reply(status=206, body=found.data[start:end], headers=found.headers | place)

    def delete(self, key: str, headers: Mapping[str, str]) -> Reply:
        with self.lock:
            self._found(key)
            self._require(key, headers)
            del self.objects[key]
        return Reply(status=204)

    def list(self, query: Mapping[str, str]) -> Reply:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = max(query.get("start-after", ""), query.get("continuation-token", ""))
        limit = min(int(query.get("max-keys") or _PAGE), _PAGE)
        with self.lock:
            objects = sorted(self.objects.items())
        entries: dict[str, str] = {}
        last, rest = "", False
        for key, found in objects:
            below = key.removeprefix(prefix)
            if not key.startswith(prefix) or key <= after:
                continue
            is_common = bool(delimiter) and delimiter in below
            common = prefix + below.split(delimiter)[0] + delimiter if is_common else ""
            name = common or key
            if name not in entries and len(entries) == limit:
                rest = True
                break
            entries[name] = _prefix(common) if is_common else _contents(key, found)
            last = key
        token = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if rest else ""
        return _document(
            "ListBucketResult",
            f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(entries)}</KeyCount>"
            f"<IsTruncated>{str(rest).lower()}</IsTruncated>{token}{''.join(entries.values())}",
        )

    def begin(self, key: str) -> Reply:
        with self.lock:
            upload = f"upload-{next(self._numbers)}"
            self.uploads[upload] = key, {}
        names = f"<Bucket>{BUCKET}</Bucket><Key>{escape(key)}</Key><UploadId>{upload}</UploadId>"
        return _document("InitiateMultipartUploadResult", names)

    def part(self, upload: str, number: int, data: bytes) -> Reply:
        with self.lock:
            self._parts(upload)[number] = data
        return Reply(headers={"ETag": Stored(data=data, generation=0).headers["ETag"]})

    def complete(self, key: str, upload: str, body: str, headers: Mapping[str, str]) -> Reply:
        with self.lock:
            parts = self._parts(upload)
            numbers = [int(one) for one in re.findall(r"<PartNumber>(\d+)</PartNumber>", body)]
            if not numbers or numbers != sorted(set(numbers)) or not parts.keys() >= set(numbers):
                raise RefusedError("InvalidPart")
            if any(len(parts[number]) < _LEAST_PART for number in numbers[:-1]):
                raise RefusedError("EntityTooSmall")
            self._require(key, headers)
            kept = self._keep(key, b"".join(parts[number] for number in numbers))
            del self.uploads[upload]
        tag = escape(kept.headers["ETag"])
        names = f"<Bucket>{BUCKET}</Bucket><Key>{escape(key)}</Key><ETag>{tag}</ETag>"
        return _document("CompleteMultipartUploadResult", names, kept.headers)

    def give_up(self, upload: str) -> Reply:
        with self.lock:
            self._parts(upload)
            del self.uploads[upload]
        return Reply(status=204)

    def _keep(self, key: str, data: bytes) -> Stored:
        self.objects[key] = kept = Stored(data=data, generation=next(self._numbers))
        return kept

    def _found(self, key: str) -> Stored:
        if key not in self.objects:
            raise RefusedError("NoSuchKey")
        return self.objects[key]

    def _parts(self, upload: str) -> dict[int, bytes]:
        if upload not in self.uploads:
            raise RefusedError("NoSuchUpload")
        return self.uploads[upload][1]

    def _require(self, key: str, headers: Mapping[str, str]) -> None:
        """Keep the condition on the generation; 0 is that of an object that is not there."""
        wanted = headers.get("x-goog-if-generation-match")
        found = self.objects.get(key)
        if wanted is not None and int(wanted) != (found.generation if found else 0):
            raise RefusedError("PreconditionFailed")


def answer(
    bucket: Bucket, verb: str, target: str, headers: Mapping[str, str], body: bytes
) -> Reply:
    """Answer one request."""
    if headers.get("authorization") != f"Bearer {TOKEN}":
        raise RefusedError("AuthenticationRequired")
    url = urlsplit(target)
    name, _, key = unquote(url.path).removeprefix("/").partition("/")
    query = {name: one for name, (one, *_) in parse_qs(url.query, keep_blank_values=True).items()}
    if name != BUCKET:
        raise RefusedError("NoSuchBucket")
    upload = query.get("uploadId", "")
    match verb, bool(key), bool(upload):
        case "GET", False, _:
            return bucket.list(query)
        case "GET" | "HEAD", True, _:
            return bucket.get(key, headers)
        case "PUT", True, False:
            return bucket.put(key, body, headers)
        case "PUT", True, True:
            return bucket.part(upload, int(query["partNumber"]), body)
        case "POST", True, False if "uploads" in query:
            return bucket.begin(key)
        case "POST", True, True:
            return bucket.complete(key, upload, body.decode(), headers)
        case "DELETE", True, False:
            return bucket.delete(key, headers)
        case "DELETE", True, True:
            return bucket.give_up(upload)
    raise RefusedError("MethodNotAllowed")


def _range(text: str, size: int) -> tuple[int, int]:
    """Start and end of a range: "bytes=1-2", "bytes=1-" or "bytes=-2"."""
    first, _, last = text.removeprefix("bytes=").partition("-")
    start = max(size - int(last), 0) if not first else int(first)
    end = min(int(last) + 1, size) if first and last else size
    if start >= end:
        raise RefusedError("InvalidRange")
    return start, end


def _contents(key: str, found: Stored) -> str:
    stamp = datetime.fromtimestamp(found.stamp, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return (
        f"<Contents><Key>{escape(key)}</Key><Generation>{found.generation}</Generation>"
        f"<MetaGeneration>1</MetaGeneration><LastModified>{stamp}</LastModified>"
        f"<ETag>{escape(found.headers['ETag'])}</ETag><Size>{len(found.data)}</Size></Contents>"
    )


def _prefix(name: str) -> str:
    return f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"


def _document(name: str, inner: str, headers: Mapping[str, str] | None = None) -> Reply:
    text = f"<?xml version='1.0' encoding='UTF-8'?><{name}>{inner}</{name}>"
    return Reply(body=text.encode(), headers={"Content-Type": "application/xml", **(headers or {})})


@contextmanager
def gcs() -> Iterator[StoreServer]:
    """Run the server in threads of this process."""
    bucket = Bucket()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): text for name, text in self.headers.items()}
            try:
                reply = answer(bucket, self.command, self.path, headers, body)
            except RefusedError as refused:
                code = str(refused)
                made = _document("Error", f"<Code>{code}</Code><Message>{code}</Message>")
                reply = Reply(status=_MESSAGES[code], body=made.body, headers=made.headers)
            self.send_response(reply.status)
            for name, text in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
                self.send_header(name, text)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(reply.body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_one

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield StoreServer(
                kind="gcs", host="127.0.0.1", port=server.server_port, access_key="",
                secret_key=TOKEN, pid=os.getpid(),
            )  # fmt: skip
        finally:
            server.shutdown()
            thread.join()
