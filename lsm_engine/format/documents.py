"""JSON documents of a table: schema, snapshot, tag, consumer and hints (format sections 2, 3, 10).

Unknown members are ignored when read, unless their names look damaged; members that are absent are left out when written."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any

from lsm_engine.base.errors import (
    CorruptFileError,
    ErrorKind,
    InvalidInputError,
    LsmError,
    UnsupportedError,
)
from lsm_engine.base.record import record
from lsm_engine.format.avro.container import (
    MANIFEST_LIMITS,
    EncodedContainer,
    read_container,
    unpacked,
)
from lsm_engine.format.checksum import FORM, checksum_of, checksum_text
from lsm_engine.format.commit_message import (
    FORGOTTEN_LENGTH,
    CommitIdentifiers,
    LastCommit,
    RecordedIdentifiers,
)
from lsm_engine.format.json_object import (
    CHECKSUM,
    CONSUMER_MEMBERS,
    FIELD_MEMBERS,
    OWN_BRANCH,
    OWN_CONSUMER_ID,
    OWN_ID,
    OWN_NAME,
    SCHEMA_MEMBERS,
    TAG_ONLY_MEMBERS,
    JsonObject,
    object_text,
    parse_object,
    refuse_damaged_names,
)
from lsm_engine.format.snapshot import SNAPSHOT_VERSION, Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.options.foreign import UNREAD_COLUMNS
from lsm_engine.options.modes import CommitKind
from lsm_engine.options.table_options import foreign_options
from lsm_engine.types.table_schema import SCHEMA_VERSION, TableSchema
from lsm_engine.types.types import (
    ArrayType,
    DataField,
    DataType,
    MapType,
    RowType,
    ScalarType,
    field_json,
    parse_field,
)

# -- The checksums that a snapshot keeps of the files it names, as a text among its properties -----
#
# `crc32 of=1a2b3c4d base=… delta=… changelog=… index=… schema=…`: properties are what other clients hand on
# when they make a tag, a branch or a changelog of a snapshot. Java's `compact_manifest` hands them on to a
# snapshot of its own, too: `of`, the checksum of the name of the delta list, tells whose they are. In memory
# checksums are kept by file name, so that a copy of a snapshot that names another file has no checksum of it,
# rather than a wrong one.
# The copy of its manifest lists, which they are for as well, is kept beside them.

PROPERTY = "lsm.checksums"
LISTS = "lsm.manifest-lists"
_OURS = "lsm."
_OF = re.compile(r" of=([0-9a-f]{8})")
_PART = re.compile(r"([a-z]+)=([0-9a-f]{8})")


def with_checksums(snapshot: Snapshot, *, file_name: str) -> Snapshot:
    """Return a snapshot as read, its checksums and its copy of lists taken out of its properties.

    Of properties that are those of another snapshot ours are left out, which say how that one was made.
    Raises CorruptFileError for a text that is none, or a property that seems to be it but misspelt.
    """
    properties = snapshot.properties
    if properties is None:
        return snapshot
    refuse_damaged_names(properties, (PROPERTY,), file_name=file_name)
    text, lists = properties.get(PROPERTY), properties.get(LISTS)
    if text is None and lists is None:
        return snapshot
    if (match := _OF.search(text or "")) and match[1] != _mark(snapshot):
        other_properties = {key: properties[key] for key in properties if not key.startswith(_OURS)}
        return replace(snapshot, properties=other_properties or None)
    return replace(
        snapshot,
        properties={key: properties[key] for key in properties if key not in (PROPERTY, LISTS)}
        or None,
        checksums=None if text is None else _parsed(snapshot, text, file_name),
        manifest_lists=lists,
    )


def _parsed(snapshot: Snapshot, text: str, file_name: str) -> Mapping[str, int]:
    form, *parts = _OF.sub("", text).split(" ")
    matches = [_PART.fullmatch(part) for part in parts]
    names = _names(snapshot)
    if form != FORM or not all(match and match[1] in names for match in matches):
        raise CorruptFileError(
            f"property {PROPERTY!r} holds no checksums of this snapshot's files; restore the file",
            file=file_name,
            value=text[:120],
        )
    return {names[match[1]]: int(match[2], 16) for match in matches if match}


def stored_properties(snapshot: Snapshot) -> Mapping[str, str] | None:
    """Return the properties that a snapshot's file has: its own, its copy of lists, and its checksums."""
    checksums = [
        f"{role}={checksum_text(checksum)}"
        for role, name in _names(snapshot).items()
        if (checksum := snapshot.checksum_of(name)) is not None
    ]
    text = " ".join([FORM, f"of={_mark(snapshot)}", *checksums]) if checksums else None
    recorded = {LISTS: snapshot.manifest_lists, PROPERTY: text}
    added = {name: text for name, text in recorded.items() if text is not None}
    return {**(snapshot.properties or {}), **added} if added else snapshot.properties


def _mark(snapshot: Snapshot) -> str:
    """Return the mark of a state: no two commits reference one delta manifest list."""
    return checksum_text(checksum_of(snapshot.delta_manifest_list.encode(errors="replace")))


def _names(snapshot: Snapshot) -> dict[str, str]:
    """Return the names of the files whose checksums a snapshot stores, by their role."""
    names = {
        "base": snapshot.base_manifest_list,
        "delta": snapshot.delta_manifest_list,
        "changelog": snapshot.changelog_manifest_list,
        "index": snapshot.index_manifest,
        "schema": snapshot.schema_name,
    }
    return {role: name for role, name in names.items() if name is not None}


# -- Refusal of documents that readers refuse ------------------------------------------------------
#
# The caps of readers, applied to what is about to be published.

_NEW = "a file that is not written yet"


def readable(data: bytes, decode: Callable[..., object]) -> bytes:
    """Return `data`, which `decode(data, file_name=...)` takes.

    Raises InvalidInputError where it does not: then nothing may be written.
    """
    try:
        decode(data, file_name=_NEW)
    except (CorruptFileError, UnsupportedError) as refusal:
        # Not damage: the caller's values would make a file that no reader takes.
        raise InvalidInputError(
            f"nothing was written, as readers would refuse it: {refusal.message}",
            member=refusal.facts.get("member"),
        ) from refusal
    return data


def check_readable_avro(data: bytes, decode: Callable[..., object], *, file_name: str) -> None:
    """Raise InvalidInputError for a metadata file that readers would refuse.

    Its blocks are unfolded under the readers' limits. Of a small file that is all there is to find;
    a larger one, which may have more list items than allowed, is decoded. One that was just made of so
    little that it is within every limit is not looked at.
    """
    if isinstance(data, EncodedContainer) and data.content_bytes <= MANIFEST_LIMITS.items:
        return

    def unfold(data: bytes, *, file_name: str) -> None:
        size = sum(len(block) for _, block in unpacked(read_container(data, file_name=file_name)))
        if size > MANIFEST_LIMITS.items:  # an item takes a byte at least
            decode(data, file_name=file_name)

    try:
        readable(data, unfold)
    except InvalidInputError as refusal:
        raise InvalidInputError(
            f"{refusal.message}; are keys, or minima and maxima of columns, very large?",
            file=file_name,
            bytes=len(data),
        ) from refusal


# -- JSON documents of a table ---------------------------------------------------------------------

_SNAPSHOTS_KEPT = 16
_SCHEMAS_KEPT = 32
"""A scan reads the file of a schema each time, as another process may have made the table anew: the same bytes
are the same schema.
"""

# --- schemas -------------------------------------------------------------------------------------


@lru_cache(_SCHEMAS_KEPT)
def decode_schema(data: bytes, *, file_name: str) -> TableSchema:
    """Return the schema that a schema file holds, with the defaults of older versions filled in.

    Raises CorruptFileError for what is no schema, UnsupportedError for newer versions and for types
    that this version does not read.
    """
    document = parse_object(data, file_name=file_name)
    refuse_damaged_names(document.members, SCHEMA_MEMBERS, file_name=file_name)
    version = document.optional_long("version") or 1  # the first writers recorded none
    if version > SCHEMA_VERSION:
        raise UnsupportedError(
            f"schema version {version} is newer than {SCHEMA_VERSION}, the newest this version reads",
            kind=ErrorKind.UNSUPPORTED_FORMAT,
            file=file_name,
        )
    options = document.text_map("options") or {}
    keys = {*document.texts("partitionKeys"), *document.texts("primaryKeys")}
    unread_names = {
        name.strip() for key in UNREAD_COLUMNS for name in options.get(key, "").split(",")
    }
    fields, unread = [], {}
    for item in document.objects("fields"):
        try:
            field = _field(item, file_name)
            if field.name not in unread_names:
                fields.append(field)
                continue
        except UnsupportedError:
            # Rows are read without such a column, but not without a key.
            if item.text("name") in keys:
                raise
        unread[item.text("name")] = _type_word(item.members["type"])
    if version == 1:
        options = {"bucket": "1", **options}
    if version <= 2:
        options = {"file.format": "orc", **options}
    highest = max((_highest_id(field) for field in fields), default=-1)
    schema = TableSchema(
        id=document.long("id"),
        fields=tuple(fields),
        highest_field_id=max(document.optional_long("highestFieldId") or 0, highest),
        partition_keys=document.texts("partitionKeys"),
        primary_keys=document.texts("primaryKeys"),
        options=foreign_options(options, unread),
        comment=document.optional_text("comment"),
        time_millis=document.optional_long("timeMillis") or 0,
        version=version,
        read_from=(document.long("id"), checksum_of(data)),
    )
    _check_names(schema, file_name)
    return schema


def encode_schema(schema: TableSchema) -> bytes:
    """Return the schema file of a schema; InvalidInputError for one that readers would refuse."""
    text = object_text(
        {
            "version": schema.version,
            "id": schema.id,
            "fields": [field_json(field) for field in schema.fields],
            "highestFieldId": schema.highest_field_id,
            "partitionKeys": list(schema.partition_keys),
            "primaryKeys": list(schema.primary_keys),
            "options": dict(schema.options.texts),
            "comment": schema.comment,
            "timeMillis": schema.time_millis,
        }
    )
    return readable(text, decode_schema)


def _type_word(stored: Any) -> str:
    """Return the type of a column as messages name it, such as VECTOR."""
    return str(stored.get("type") if isinstance(stored, dict) else stored)


def _field(item: JsonObject, file_name: str) -> DataField:
    try:
        refuse_damaged_names(item.members, FIELD_MEMBERS, file_name=file_name)
        item.long("id")
        item.text("name")
        return parse_field(dict(item.members))
    except UnsupportedError as refusal:
        raise UnsupportedError(
            refusal.message, kind=refusal.kind, file=file_name, **refusal.facts
        ) from refusal
    except (LsmError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
        # The members of a damaged file may have any type: every such error means damage.
        if isinstance(cause, CorruptFileError):
            raise
        raise CorruptFileError(
            "a field of the schema is not well formed; restore the file",
            file=file_name,
            field=str(item.members.get("name"))[:80],
        ) from cause


def _highest_id(field: DataField) -> int:
    return max(field.id, _highest_nested_id(field.type))


def _highest_nested_id(kind: DataType) -> int:
    match kind:
        case ArrayType():
            return _highest_nested_id(kind.element)
        case MapType():
            return max(_highest_nested_id(kind.key), _highest_nested_id(kind.value))
        case RowType():
            return max((_highest_id(field) for field in kind.fields), default=-1)
        case ScalarType():
            return -1


def _check_names(schema: TableSchema, file_name: str) -> None:
    names, ids = set(schema.names), {field.id for field in schema.fields}
    if len(names) != len(schema.fields) or len(ids) != len(schema.fields):
        raise CorruptFileError("two columns share a name or an id", file=file_name)
    for key in (*schema.partition_keys, *schema.primary_keys):
        if key not in names:
            raise CorruptFileError(f"key column {key!r} is no column", file=file_name, column=key)


# --- snapshots -----------------------------------------------------------------------------------


def _kind(document: JsonObject, member: str) -> CommitKind:
    text = document.text(member)
    kinds = {kind.value: kind for kind in CommitKind}
    if text not in kinds:
        raise UnsupportedError(
            f"commit kind {text!r} is unknown to this version",
            kind=ErrorKind.UNSUPPORTED_FORMAT,
            file=document.file_name,
        )
    return kinds[text]


_MEMBERS: tuple[tuple[str, str, Callable[[JsonObject, str], Any]], ...] = (
    ("version", "version", JsonObject.optional_long),
    ("uuid", "uuid", JsonObject.optional_text),
    ("id", "id", JsonObject.long),
    ("schemaId", "schema_id", JsonObject.long),
    ("baseManifestList", "base_manifest_list", JsonObject.name),
    ("baseManifestListSize", "base_manifest_list_size", JsonObject.optional_long),
    ("deltaManifestList", "delta_manifest_list", JsonObject.name),
    ("deltaManifestListSize", "delta_manifest_list_size", JsonObject.optional_long),
    ("changelogManifestList", "changelog_manifest_list", JsonObject.optional_name),
    ("changelogManifestListSize", "changelog_manifest_list_size", JsonObject.optional_long),
    ("indexManifest", "index_manifest", JsonObject.optional_name),
    ("commitUser", "commit_user", JsonObject.text),
    ("commitIdentifier", "commit_identifier", JsonObject.long),
    ("commitKind", "commit_kind", _kind),
    ("timeMillis", "time_millis", JsonObject.long),
    ("logOffsets", "log_offsets", JsonObject.long_map),
    ("totalRecordCount", "total_record_count", JsonObject.optional_long),
    ("deltaRecordCount", "delta_record_count", JsonObject.optional_long),
    ("changelogRecordCount", "changelog_record_count", JsonObject.optional_long),
    ("watermark", "watermark", JsonObject.optional_long),
    ("statistics", "statistics", JsonObject.optional_name),
    ("properties", "properties", JsonObject.text_map),
    ("nextRowId", "next_row_id", JsonObject.optional_long),
    ("operation", "operation", JsonObject.optional_text),
    ("writerVersion", "writer_version", JsonObject.optional_text),
)
"""What a snapshot file holds, in the order written: the member, the attribute, and how it is read."""
_SNAPSHOT_MEMBERS = frozenset(member for member, _, _ in _MEMBERS)


@lru_cache(maxsize=_SNAPSHOTS_KEPT)
def decode_snapshot(data: bytes, *, file_name: str) -> Snapshot:
    """Return the snapshot, or decoupled changelog, that a file holds.

    A commit reads a few files again and again, to see whether they are still the same: equal bytes are
    decoded once. Raises CorruptFileError, and UnsupportedError for newer versions and unknown kinds
    of commit.
    """
    document = parse_object(data, file_name=file_name)
    if not TAG_ONLY_MEMBERS.isdisjoint(document.members):
        raise CorruptFileError(
            "the file holds a tag and no snapshot; restore it",
            file=file_name,
            id=document.long("id"),
        )
    refuse_damaged_names(
        document.members, _SNAPSHOT_MEMBERS | TAG_ONLY_MEMBERS, file_name=file_name
    )
    return _snapshot(document)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return the snapshot file of a snapshot; InvalidInputError for one that readers would refuse."""
    return readable(object_text(_snapshot_members(snapshot)), decode_snapshot)


def _snapshot(document: JsonObject) -> Snapshot:
    version = document.optional_long("version")
    if version is not None and version > SNAPSHOT_VERSION:
        raise UnsupportedError(
            f"snapshot version {version} is newer than {SNAPSHOT_VERSION}, the newest this version "
            "reads",
            kind=ErrorKind.UNSUPPORTED_FORMAT,
            file=document.file_name,
        )
    snapshot = Snapshot(
        **{attribute: read(document, member) for member, attribute, read in _MEMBERS}
    )
    return with_checksums(snapshot, file_name=document.file_name)


def _snapshot_members(snapshot: Snapshot) -> dict[str, Any]:
    properties, offsets = stored_properties(snapshot), snapshot.log_offsets
    return {member: getattr(snapshot, attribute) for member, attribute, _ in _MEMBERS} | {
        "commitKind": snapshot.commit_kind.value,
        "logOffsets": None if offsets is None else dict(offsets),
        "properties": None if properties is None else dict(properties),
    }


# --- tags ----------------------------------------------------------------------------------------

_CREATED_TEXT = re.compile(
    r"(\d{4,})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?Z?"
)
_DURATION = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d{1,9})?)S)?)?"
)


def decode_tag(
    data: bytes,
    *,
    name: str,
    file_name: str,
    is_of: Callable[[str, str], bool] = lambda *_: True,
) -> Tag:
    """Return the tag that a tag file holds; of other clients one may be just a snapshot, without a birthday.

    `is_of` is asked where the file names another tag, with it and its branch ("": main): whether it is that one's,
    and not renamed.
    """
    document = parse_object(data, file_name=file_name)
    refuse_damaged_names(
        document.members, _SNAPSHOT_MEMBERS | TAG_ONLY_MEMBERS, file_name=file_name
    )
    if TAG_ONLY_MEMBERS.isdisjoint(document.members) and f'"{CHECKSUM}"'.encode() in data:
        raise CorruptFileError(
            "the file holds a snapshot and no tag; restore it, or delete the tag", file=file_name
        )
    own_name = document.optional_name(OWN_NAME)
    if own_name not in (None, name) and is_of(own_name, document.optional_name(OWN_BRANCH) or ""):
        raise _of_another("tag", own_name, file_name)
    return Tag(
        name=name,
        snapshot=_snapshot(document),
        created=_created(document),
        retained_millis=_retained_millis(document),
        id=document.optional_text(OWN_ID),
        content=data,
    )


def encode_tag(tag: Tag, branch: str = "") -> bytes:
    """Return the tag file of a branch's tag: the snapshot's members, and the tag's own behind them.

    Raises InvalidInputError for a tag that readers would refuse.
    """
    own = {OWN_NAME: tag.name, OWN_BRANCH: branch or None, OWN_ID: tag.id}
    members = _snapshot_members(tag.snapshot) | own
    if tag.created is not None:
        members["tagCreateTime"] = list(tag.created)
    raw = {}
    if tag.retained_millis is not None:
        seconds, millis = divmod(tag.retained_millis, 1000)
        raw["tagTimeRetained"] = f"{seconds}.{millis:03d}000000"
    return readable(object_text(members, raw=raw), partial(decode_tag, name=tag.name))


def _created(document: JsonObject) -> tuple[int, ...] | None:
    value = document.members.get("tagCreateTime")
    if value is None:
        return None
    if isinstance(value, list) and 3 <= len(value) <= 7 and all(type(v) is int for v in value):
        return tuple(value) + (0,) * (7 - len(value))  # trailing zeros are left out by some
    if isinstance(value, str) and (match := _CREATED_TEXT.fullmatch(value)):
        *parts, fraction = match.groups()
        return (*(int(part or 0) for part in parts), int((fraction or "").ljust(9, "0")))
    raise CorruptFileError(
        "member 'tagCreateTime' is no point in time; delete the tag and create it anew",
        file=document.file_name,
        value=repr(value)[:80],
    )


def _retained_millis(document: JsonObject) -> int | None:
    value = document.members.get("tagTimeRetained")
    if value is None:
        return None
    if type(value) is int and 0 <= value < 1 << 50:
        return value * 1000
    if isinstance(value, Decimal) and value.is_finite() and 0 <= value < 1 << 50:
        return int(value * 1000)
    if isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        seconds = sum(
            Decimal(match[unit] or 0) * factor
            for unit, factor in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))
        )
        return int(seconds * 1000)
    raise CorruptFileError(
        "member 'tagTimeRetained' is no duration; delete the tag and create it anew",
        file=document.file_name,
        value=repr(value)[:80],
    )


# --- consumers and hints -------------------------------------------------------------------------


def decode_consumer(data: bytes, *, name: str, file_name: str) -> int:
    """Return the id of the snapshot that a consumer reads next."""
    document = parse_object(data, file_name=file_name)
    refuse_damaged_names(document.members, CONSUMER_MEMBERS, file_name=file_name)
    own_name = document.optional_text(OWN_NAME)
    if own_name not in (None, name):
        raise _of_another("consumer", own_name, file_name)
    return document.long("nextSnapshot")


def encode_consumer(next_snapshot: int, *, name: str, consumer_id: str | None = None) -> bytes:
    """Return a consumer file; InvalidInputError for an id that readers would refuse.

    `consumer_id`: of this content, so that no two are the same.
    """
    members = {"nextSnapshot": next_snapshot, OWN_NAME: name, OWN_CONSUMER_ID: consumer_id}
    return readable(object_text(members), partial(decode_consumer, name=name))


def named_in(data: bytes, *, file_name: str) -> str | None:
    """Return the name that a tag file carries; None for one of another client."""
    return parse_object(data, file_name=file_name).optional_name(OWN_NAME)


def _of_another(kind: str, own_name: str | None, file_name: str) -> CorruptFileError:
    return CorruptFileError(
        f"the file is that of {kind} {own_name!r}; restore it, or delete the {kind}", file=file_name
    )


HINT_BYTES = 32
"""Bytes of a hint that are looked at."""


def decode_hint(data: bytes) -> int | None:
    """Return the id in a LATEST or EARLIEST file; None where it holds none: a hint is only advice."""
    text = data[:HINT_BYTES].strip()
    return int(text) if text.isdigit() and len(text) <= 19 else None


def encode_hint(snapshot_id: int) -> bytes:
    """Return the content of a LATEST or EARLIEST file."""
    return str(snapshot_id).encode()


# --- commit identifiers -----------------------------------------------------------------------

COMMIT_IDENTIFIERS = "lsm.commit-identifiers"
"""Property of a snapshot: the last numbered commit of each commit user up to it, its own included."""

_VERSION = "1"
_FLAGS = {"has_more": "m", "has_file": "f", "is_recorded": "r", "is_incomplete": "i"}
_LONG = r"-?[0-9]{1,19}"
_KEY = r"[A-Za-z0-9_-]{16}"
_HEAD = re.compile(r"1([mfri]*)")
_LAST = re.compile(rf"({_KEY}):({_LONG}):([acon?+]{{1,6}}):([0-9]{{1,19}}):({_LONG})")
_PENDING = re.compile(rf"({_KEY}):({_LONG}):([0-9]{{1,19}})")
_FORGOTTEN = re.compile(r"[A-Za-z0-9_-]*")


def carried(base: Snapshot | None) -> str | None:
    """Return the property of a snapshot that changes nothing of its base's; None where the base has none."""
    return _VERSION if base is None else (base.properties or {}).get(COMMIT_IDENTIFIERS)


def decode_identifiers(text: str, *, file_name: str) -> CommitIdentifiers:
    """Return the commit identifiers of a property; CorruptFileError for damage, UnsupportedError for newer versions."""
    head, *words = text.split(" ")
    flags = _HEAD.fullmatch(head)
    if flags is None:
        if head.isalnum() and head[0].isdigit() and head[0] != _VERSION:
            raise UnsupportedError(
                f"commit identifiers of version {head[0]} are newer than {_VERSION}, the newest this version reads",
                kind=ErrorKind.UNSUPPORTED_FORMAT,
                file=file_name,
            )
        raise _damaged(file_name, head)
    return CommitIdentifiers(
        users=_users(words, file_name),
        **{name: letter in flags[1] for name, letter in _FLAGS.items()},
    )


def encode_identifiers(identifiers: CommitIdentifiers) -> str:
    """Return the property that holds them."""
    flags = "".join(letter for name, letter in _FLAGS.items() if getattr(identifiers, name))
    return " ".join([_VERSION + flags, *_words(identifiers.users)])


def decode_recorded(data: bytes, *, file_name: str) -> RecordedIdentifiers:
    """Return the commit identifiers of the file; raises as `decode_identifiers`."""
    stored = parse_object(data, file_name=file_name)
    version = stored.long("version")
    if version != int(_VERSION):
        raise UnsupportedError(
            f"commit identifiers of version {version} are not those of {_VERSION}, which this version reads",
            kind=ErrorKind.UNSUPPORTED_FORMAT,
            file=file_name,
        )
    return RecordedIdentifiers(
        snapshot_id=stored.long("snapshotId"),
        users=_users(_split(stored, "users"), file_name),
        pending=_pending(_split(stored, "pending"), file_name),
        forgotten=_forgotten(stored.optional_text("forgotten") or "", file_name),
        is_recorded=stored.optional_long("isRecorded") == 1,
    )


def encode_recorded(recorded: RecordedIdentifiers) -> bytes:
    """Return the file that holds them."""
    pending = (f"{key}:{number}:{base}" for key, (number, base) in recorded.pending.items())
    return object_text(
        {
            "version": int(_VERSION),
            "snapshotId": recorded.snapshot_id,
            "isRecorded": int(recorded.is_recorded),
            "users": " ".join(_words(recorded.users)),
            "pending": " ".join(pending),
            "forgotten": "".join(sorted(recorded.forgotten)),
        }
    )


def _words(users: Mapping[str, LastCommit]) -> Iterable[str]:
    for key, last in users.items():
        yield f"{key}:{last.identifier}:{last.kinds}:{last.snapshot_id}:{last.seconds}"


def _split(stored: JsonObject, member: str) -> list[str]:
    return (stored.optional_text(member) or "").split()


def _users(words: Iterable[str], file_name: str) -> dict[str, LastCommit]:
    users: dict[str, LastCommit] = {}
    for word in words:
        parts = _LAST.fullmatch(word)
        if parts is None:
            raise _damaged(file_name, word)
        users[parts[1]] = LastCommit(
            identifier=int(parts[2]),
            kinds=parts[3],
            snapshot_id=int(parts[4]),
            seconds=int(parts[5]),
        )
    return users


def _pending(words: Iterable[str], file_name: str) -> dict[str, tuple[int, int]]:
    pending: dict[str, tuple[int, int]] = {}
    for word in words:
        parts = _PENDING.fullmatch(word)
        if parts is None:
            raise _damaged(file_name, word)
        pending[parts[1]] = (int(parts[2]), int(parts[3]))
    return pending


def _forgotten(text: str, file_name: str) -> frozenset[str]:
    if len(text) % FORGOTTEN_LENGTH or not _FORGOTTEN.fullmatch(text):
        raise _damaged(file_name, text)
    return frozenset(
        text[place : place + FORGOTTEN_LENGTH] for place in range(0, len(text), FORGOTTEN_LENGTH)
    )


def _damaged(file_name: str, value: str) -> CorruptFileError:
    return CorruptFileError(
        "the file holds no commit identifiers where it should; restore it",
        file=file_name,
        value=value[:80],
    )


# -- Table statistics of ANALYZE (format section 2) ------------------------------------------------


@record
class TableStatistics:
    """The statistics of a snapshot that ANALYZE wrote.

    `column_stats`: JSON text, as it was stored. `null_counts`: by column, of all that it has; None
    where it has no count.
    """

    snapshot_id: int
    schema_id: int
    merged_record_count: int | None
    merged_record_size: int | None
    column_stats: str | None
    null_counts: Mapping[str, int | None]


def decode_statistics(data: bytes, *, file_name: str) -> TableStatistics:
    """Return the statistics in a file; raises CorruptFileError, naming it, for anything else."""
    document = parse_object(data, file_name=file_name)
    columns = document.object_map("colStats")
    return TableStatistics(
        snapshot_id=document.long("snapshotId"),
        schema_id=document.long("schemaId"),
        merged_record_count=document.optional_count("mergedRecordCount"),
        merged_record_size=document.optional_count("mergedRecordSize"),
        column_stats=None
        if columns is None
        else json.dumps(document.members["colStats"], ensure_ascii=False, default=str),
        null_counts={
            name: column.optional_count("nullCount") for name, column in (columns or {}).items()
        },
    )
