"""Rows of snapshots, tags and branches, read by the engine once for each content of the files that they name.

Files of most schedules are the same: what a reference names is looked up here without the engine, and where
all of it is there with a content that was read before, the rows are known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lsm_engine.base.errors import LsmError
from lsm_engine.metadata.publishing import RENAMING, claim_in
from lsm_engine.planning.tags import is_lock
from tests.model.avro_records import avro_records

Rows = tuple[str, ...]
_STORE = re.compile(r" store='memory://process-[^']*'")


@dataclass(frozen=True)
class Unreadable:
    """In place of rows that cannot be read."""

    reason: str


@lru_cache(maxsize=20_000)
def _records(data: bytes) -> tuple[Mapping[str, Any], ...]:
    return tuple(avro_records(data))


def _document(files: Mapping[str, bytes], path: str) -> bytes | None:
    """Return what a file reads as: under a void claim what it held before; None: as no file."""
    claim = claim_in(files[path], file_name=path)
    if claim is None:
        return files[path]
    directory = "/".join(path.split("/")[:2])
    owner = claim_in(files.get(f"{directory}/schema/schema-0", b""), file_name=path)
    # A branch that is being made or deleted does not exist, and names nothing; making or deleting it again goes on.
    is_hidden = owner is not None and owner.claim_id == claim.claim_id and owner.reason != RENAMING
    return None if is_hidden else claim.before


class References:
    """What the files of one disk name."""

    _known: dict[object, Rows | Unreadable] = {}  # noqa: RUF012 -- of all disks, by content

    def __init__(self, files: Mapping[str, bytes]) -> None:
        documents = {path: _document(files, path) for path in files}
        self._files = {path: data for path, data in documents.items() if data is not None}
        self._claimed = {path for path, data in files.items() if data is not documents[path]}
        self._paths = {path.rpartition("/")[2]: path for path in files}
        self._schemas = frozenset((path, data) for path, data in files.items() if "schema/" in path)

    def rows(
        self, path: str, read: Callable[[], Any], *, newest: bool = False
    ) -> Rows | Unreadable:
        """Return what `read` gives of the snapshot or tag in a file; `newest`: with the newest schema."""
        content = self._content(path)
        if content is None:
            return _rows(read)
        content = content, newest
        if content not in self._known:
            self._known[content] = _rows(read)
        return self._known[content]

    def missing(self, *, with_passed: bool = False) -> list[str]:
        """Return the files that snapshots, tags and changelogs name, and that are not there.

        `with_passed`: also those of snapshot files below EARLIEST, which no reader takes for snapshots, and which the
        next expiry deletes.
        """
        names: set[str] = set()
        for path, data in self._files.items():
            name = path.rpartition("/")[2]
            if is_lock(name.removeprefix("tag-")):
                continue  # of one who was killed it may be of what has expired
            if not with_passed and self._is_passed(path):
                continue
            if "bucket-" in path:
                continue
            if name.startswith(("snapshot-", "tag-")):
                names.update(self._named(json.loads(data), is_tag=name.startswith("tag-")))
            elif name.startswith("changelog-"):
                # Of a changelog that outlives its snapshot nothing else is kept.
                names.update(self._changelog_names(json.loads(data)))
        return sorted(names - self._paths.keys())

    def _is_passed(self, path: str) -> bool:
        """Return whether an expiry of main or of a branch has passed a snapshot file."""
        directory, _, name = path.rpartition("/")
        number = name.removeprefix("snapshot-")
        if not (directory.endswith("snapshot") and number.isdigit()):
            return False
        return int(number) < int(self._files.get(f"{directory}/EARLIEST", b"0"))

    def _content(self, path: str) -> object:
        """Return what tells apart all that a snapshot or tag is read from; None if a file is missing."""
        if path in self._claimed:
            return None  # the claim may be void: the engine decides
        snapshot = json.loads(self._files[path])
        names = set(self._named(snapshot, is_tag=True))
        if not names <= self._paths.keys():
            return None
        held = frozenset((name, hash(self._files[self._paths[name]])) for name in names)
        lists = snapshot["baseManifestList"], snapshot["deltaManifestList"]
        return path.startswith("branch/") and path.split("/")[1], lists, held, self._schemas

    def _named(self, snapshot: Mapping[str, Any], *, is_tag: bool) -> Iterator[str]:
        live: set[str] = set()
        for which in ("baseManifestList", "deltaManifestList"):
            name = snapshot[which]
            if name is not None:
                yield name
                for kind, manifest, file in self._entries(name):
                    yield manifest
                    if kind == 0:
                        live.add(file)
                    else:
                        live.discard(file)
        yield from live
        index = snapshot.get("indexManifest")
        if index is not None:
            yield index
            yield from (entry["_FILE_NAME"] for entry in self._read(index))
        if not is_tag:
            yield from self._changelog_names(snapshot)

    def _changelog_names(self, snapshot: Mapping[str, Any]) -> Iterator[str]:
        told = snapshot.get("changelogManifestList")
        if told is not None:
            yield told
            for _, manifest, file in self._entries(told):
                yield manifest
                yield file

    def _entries(self, manifest_list: str) -> Iterator[tuple[int, str, str]]:
        for manifest in self._read(manifest_list):
            name = manifest["_FILE_NAME"]
            for entry in self._read(name):
                yield entry["_KIND"], name, entry["_FILE"]["_FILE_NAME"]

    def _read(self, name: str) -> tuple[Mapping[str, Any], ...]:
        path = self._paths.get(name)
        return () if path is None else _records(self._files[path])


def _rows(read: Callable[[], Any]) -> Rows | Unreadable:
    try:
        return tuple(sorted(map(repr, read().to_pylist())))
    except LsmError as error:
        # Each process has another name for the double of an object store.
        return Unreadable(_STORE.sub("", str(error)))
