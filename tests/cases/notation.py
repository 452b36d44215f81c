"""How text cases spell manifest entries, index files and snapshots.

An entry: `+p/b1of4/a@L5[3-9]x10:200` adds file a of 10 rows and 200 bytes, keys 3 to 9, on level 5 of
bucket 1 of partition p, which has 4 buckets; `-` deletes. All but the sign and the name may be left
out: the only partition, bucket 0 of 1, level 0, keys 0 to 9, 10 rows, 100 bytes. `ax10d2#7` holds 2
deletes (`d?`: not recorded) and rows from sequence number 7 on; `a{a.index}>s3://x/a` has a sidecar
file and lies at an external path. A snapshot:
`5 COMPACT user=bob id=3 uuid=u time=70`, its parts in any order after its id.

An index file: `+p/b1/i=dv(a,b:3)` holds deletion vectors of data files a and b, the latter of 3 rows,
and `+b1/i=hash` the keys of a dynamic bucket.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from lsm_engine.format.data_file import EMPTY_ROW
from lsm_engine.format.index_file import (
    DELETION_VECTORS,
    HASH,
    DeletionVectorMeta,
    IndexFileMeta,
    IndexManifestEntry,
)
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.options.modes import CommitKind, EntryKind
from tests.unit.planning.facts import entry, snapshot

_KINDS = {"+": EntryKind.ADD, "-": EntryKind.DELETE, None: EntryKind.ADD}
_PLACE = (
    r"(?P<kind>[+-])?(?:(?P<partition>[a-z]\w*)/)??(?:b(?P<bucket>-?\d+)(?:of(?P<total>-?\d+))?/)?"
)
_ENTRY = re.compile(
    _PLACE + r"(?P<name>[\w.]+)(?:@L(?P<level>\d+))?(?:\[(?P<low>-?\d+)-(?P<high>\d+)\])?"
    r"(?:x(?P<rows>\d+))?(?:d(?P<deletes>\d+|\?))?(?:#(?P<first>\d+))?(?::(?P<size>\d+))?(?:\{(?P<extra>[^}]*)\})?(?:>(?P<external>\S+))?"
)
_INDEX = re.compile(_PLACE + r"(?P<name>\w+)=(?P<type>hash|dv)(?:\((?P<vectors>[^)]*)\))?")


def entries(text: str) -> list[ManifestEntry]:
    """Return the entries that a line spells."""
    return [_entry(word) for word in text.split()]


def _matched(pattern: re.Pattern[str], word: str) -> re.Match[str]:
    found = pattern.fullmatch(word)
    assert found, f"cannot be read: {word!r}"
    return found


def _partition(found: re.Match[str]) -> bytes:
    return (found["partition"] or "").encode() or EMPTY_ROW


def _entry(word: str) -> ManifestEntry:
    found = _matched(_ENTRY, word)
    made = entry(
        found["name"], int(found["low"] or 0), int(found["high"] or 9), kind=_KINDS[found["kind"]],
        level=int(found["level"] or 0), rows=int(found["rows"] or 10), partition=_partition(found),
        bucket=int(found["bucket"] or 0), total_buckets=int(found["total"] or 1),
        size=int(found["size"] or 100), sequence=int(found["first"] or 0),
        deletes=None if found["deletes"] == "?" else int(found["deletes"] or 0),
    )  # fmt: skip
    extra = tuple(filter(None, (found["extra"] or "").split(",")))
    file = replace(made.file, extra_files=extra, external_path=found["external"])
    return replace(made, file=file)


def index_entries(text: str) -> list[IndexManifestEntry]:
    """Return the index files that a line spells."""
    made = []
    for word in text.split():
        found = _matched(_INDEX, word)
        vectors = tuple(
            DeletionVectorMeta(
                data_file_name=name.partition(":")[0], offset=1 + 10 * at, length=9,
                cardinality=int(name.partition(":")[2]) if ":" in name else None,
            )
            for at, name in enumerate((found["vectors"] or "").split(",")) if name
        )  # fmt: skip
        file = IndexFileMeta(
            index_type=HASH if found["type"] == "hash" else DELETION_VECTORS,
            file_name=found["name"], file_size=9, row_count=len(vectors),
            deletion_vectors=vectors or None,
        )  # fmt: skip
        made.append(
            IndexManifestEntry(
                kind=_KINDS[found["kind"]], partition=_partition(found),
                bucket=int(found["bucket"] or 0), index_file=file,
            )
        )  # fmt: skip
    return made


_NUMBERS = {"id": "identifier", "time": "time_millis", "total": "total", "schema": "schema_id", "watermark": "watermark", "row": "next_row_id"}  # fmt: skip
_TEXTS = {"user": "user", "uuid": "uuid", "index": "index_manifest", "stats": "statistics", "changelog": "changelog"}  # fmt: skip


def snapshot_like(text: str) -> Snapshot | None:
    """Return the snapshot that a line spells; `none`: there is none."""
    first, *words = text.split()
    if first == "none":
        return None
    facts: dict[str, object] = {}
    kind = CommitKind.APPEND
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            kind = CommitKind(name)
        elif name in _NUMBERS:
            facts[_NUMBERS[name]] = None if value == "unknown" else int(value)
        else:
            facts[_TEXTS[name]] = value
    next_row_id = facts.pop("next_row_id", None)
    made = snapshot(int(first), kind, **facts)
    return replace(made, next_row_id=next_row_id, writer_version="lsm-engine-1")


def snapshots(text: str) -> list[Snapshot]:
    """Return the snapshots that a line spells, one after the other with commas between."""
    made = (snapshot_like(part) for part in text.split(",") if part.strip())
    return [one for one in made if one is not None]


def place(partition: bytes, bucket: int) -> str:
    """Return a bucket as text."""
    return f"{partition.decode()}/b{bucket}" if partition != EMPTY_ROW else f"b{bucket}"


def show_entries(shown: Iterable[ManifestEntry]) -> str:
    """Return entries as text: sign, bucket, name and level."""
    signs = {EntryKind.ADD: "+", EntryKind.DELETE: "-"}
    return " ".join(
        f"{signs[one.kind]}{place(one.partition, one.bucket)}/{one.file.file_name}@L{one.file.level}"
        for one in shown
    )
