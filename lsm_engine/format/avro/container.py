"""The Avro object container: header, blocks and their compression, each within bounds."""

import functools
import hashlib
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, NoReturn, Protocol, cast

import pyarrow as pa
from backports import zstd

from lsm_engine.base.errors import CorruptFileError, ErrorKind, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.format.checksum import checksum_of

# -- The Avro schemas of manifests, manifest lists and index manifests, as we write them -----------
#
# They are those of format section 0: every reader that we know resolves them by field name. New
# fields are unions with null, null first, default null. Schemas are plain JSON values, ready to
# be stored.

CHECKSUM = "_LSM_CHECKSUM"
FOOTER_CHECKSUM = "_LSM_FOOTER_CHECKSUM"
"""Fields of our own, which other readers pass over: they resolve fields by name."""
NAMESPACE = "org.apache.paimon.avro.generated"


def _record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": f"{NAMESPACE}.{name}", "fields": list(fields)}


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind}


def _optional(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _stats(name: str) -> dict[str, Any]:
    return _record(
        name,
        _field("_MIN_VALUES", "bytes"),
        _field("_MAX_VALUES", "bytes"),
        _optional("_NULL_COUNTS", _array(["null", "long"])),
    )


MANIFEST = _record(
    "record",
    _field("_VERSION", "int"),
    _field("_KIND", "int"),
    _field("_PARTITION", "bytes"),
    _field("_BUCKET", "int"),
    _field("_TOTAL_BUCKETS", "int"),
    _field(
        "_FILE",
        _record(
            "record__FILE",
            _field("_FILE_NAME", "string"),
            _field("_FILE_SIZE", "long"),
            _field("_ROW_COUNT", "long"),
            _field("_MIN_KEY", "bytes"),
            _field("_MAX_KEY", "bytes"),
            _field("_KEY_STATS", _stats("record__FILE__KEY_STATS")),
            _field("_VALUE_STATS", _stats("record__FILE__VALUE_STATS")),
            _field("_MIN_SEQUENCE_NUMBER", "long"),
            _field("_MAX_SEQUENCE_NUMBER", "long"),
            _field("_SCHEMA_ID", "long"),
            _field("_LEVEL", "int"),
            _field("_EXTRA_FILES", _array("string")),
            # A plain long would stop Java 0.9, which expects a timestamp.
            _optional("_CREATION_TIME", {"type": "long", "logicalType": "timestamp-millis"}),
            _optional("_DELETE_ROW_COUNT", "long"),
            _optional("_EMBEDDED_FILE_INDEX", "bytes"),
            _optional("_FILE_SOURCE", "int"),
            _optional("_VALUE_STATS_COLS", _array("string")),
            _optional("_EXTERNAL_PATH", "string"),
            _optional("_FIRST_ROW_ID", "long"),
            _optional("_WRITE_COLS", _array("string")),
            _optional(CHECKSUM, "long"),
            _optional(FOOTER_CHECKSUM, "long"),
        ),
    ),
)

MANIFEST_LIST = _record(
    "record",
    _field("_VERSION", "int"),
    _field("_FILE_NAME", "string"),
    _field("_FILE_SIZE", "long"),
    _field("_NUM_ADDED_FILES", "long"),
    _field("_NUM_DELETED_FILES", "long"),
    _field("_PARTITION_STATS", _stats("record__PARTITION_STATS")),
    _field("_SCHEMA_ID", "long"),
    _optional("_MIN_BUCKET", "int"),
    _optional("_MAX_BUCKET", "int"),
    _optional("_MIN_LEVEL", "int"),
    _optional("_MAX_LEVEL", "int"),
    _optional("_MIN_ROW_ID", "long"),
    _optional("_MAX_ROW_ID", "long"),
    _optional("_TOTAL_BUCKETS", "int"),
    _optional("_EXTRA_FILES", _array("string")),
    _optional(CHECKSUM, "long"),
)

INDEX_MANIFEST = _record(
    "record",
    _field("_VERSION", "int"),
    _field("_KIND", "int"),
    _field("_PARTITION", "bytes"),
    _field("_BUCKET", "int"),
    _field("_INDEX_TYPE", "string"),
    _field("_FILE_NAME", "string"),
    _field("_FILE_SIZE", "long"),
    _field("_ROW_COUNT", "long"),
    _optional(
        "_DELETIONS_VECTORS_RANGES",
        _array(
            [
                "null",
                _record(
                    "record__DELETIONS_VECTORS_RANGES",
                    _field("f0", "string"),
                    _field("f1", "int"),
                    _field("f2", "int"),
                    _optional("_CARDINALITY", "long"),
                ),
            ]
        ),
    ),
    _optional("_EXTERNAL_PATH", "string"),
    _optional(CHECKSUM, "long"),
)


# -- The Avro object container: header, blocks and their compression, each within bounds -----------

MAGIC = b"Obj\x01"
CODECS = ("null", "deflate", "snappy", "zstandard")
CODECS_WRITTEN = ("zstandard", "deflate", "null")
_NAMES = {"zstd": "zstandard", "none": "null"}
_SYNC_BYTES = 16
_SCHEMA_BYTES_MAX = 4 << 20
BLOCK_BYTES_WRITTEN = 256 << 10
_ZSTD_OPTIONS = {int(zstd.DecompressionParameter.window_log_max): 26}  # 64 MB


@record
class Limits:
    """Limits of the decompressed size of a file, in bytes and rows, relative to its stored size."""

    block_bytes: int = 8 << 20
    total_bytes: int = 8 << 20
    total_bytes_per_stored_byte: int = 128
    rows: int = 100_000
    rows_per_stored_byte: int = 1
    items: int = 64 << 10  # of all lists, in each few megabytes of content
    item_bytes: int = 4  # which a list item takes on average, with what surrounds it


MANIFEST_LIMITS = Limits()
"""Manifests name files of 36 random characters and more, so an entry takes bytes even compressed; and
beside every item of a list, a null count, stand 16 bytes of bounds."""


class StoredBytes(Protocol):
    """A file's bytes, or something that fetches the spans it is asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, span: slice, /) -> bytes: ...


@record
class Block:
    """One compressed block: where its bytes lie in the file, and how many records they hold."""

    offset: int
    size: int
    row_count: int


@record
class Container:
    """An Avro file laid open; blocks are decompressed only by `unpacked`."""

    file_name: str
    data: StoredBytes
    schema: Any
    codec: str
    blocks: tuple[Block, ...]
    limits: Limits

    @property
    def row_count(self) -> int:
        """How many records the file's block headers count."""
        return sum(block.row_count for block in self.blocks)


def read_container(
    data: StoredBytes, *, file_name: str, limits: Limits = MANIFEST_LIMITS
) -> Container:
    """Return the parts of an Avro file, its framing checked to the last byte.

    Raises CorruptFileError with the offset for what is no Avro file or claims more rows than
    `limits` allow, UnsupportedError for codecs other than CODECS.
    """
    reader = _Reader(data, file_name)
    if data[:4] != MAGIC:
        reader.corrupt("it does not begin like an avro file")
    reader.position = 4
    metadata = reader.metadata()
    codec = metadata.get("avro.codec", b"null").decode("utf-8", "replace")
    if codec not in CODECS:
        raise UnsupportedError(
            f"avro codec {codec[:40]!r} is not one of {', '.join(CODECS)}",
            kind=ErrorKind.UNSUPPORTED_FORMAT,
            file=file_name,
        )
    schema = reader.schema(metadata)
    sync = reader.take(_SYNC_BYTES)
    blocks = tuple(reader.blocks(sync))
    container = Container(
        file_name=file_name, data=data, schema=schema, codec=codec, blocks=blocks, limits=limits
    )
    rows_max = limits.rows + limits.rows_per_stored_byte * len(data)
    if container.row_count > rows_max:
        raise CorruptFileError(
            "an avro file of this size cannot hold that many records",
            file=file_name,
            rows=container.row_count,
        )
    return container


class _Reader:
    def __init__(self, data: StoredBytes, file_name: str) -> None:
        self.data = data
        self.file_name = file_name
        self.position = 0

    def corrupt(self, message: str) -> NoReturn:
        raise CorruptFileError(
            f"{message}; restore or re-create the file", file=self.file_name, offset=self.position
        )

    def skip(self, size: int) -> None:
        if size < 0 or size > len(self.data) - self.position:
            self.corrupt("it ends early")
        self.position += size

    def take(self, size: int) -> bytes:
        self.skip(size)
        return self.data[self.position - size : self.position]

    def long(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
        return self.corrupt("a number does not end")

    def metadata(self) -> dict[str, bytes]:
        metadata: dict[str, bytes] = {}
        while count := self.long():
            if count < 0:
                count = -count
                self.long()
            if count > len(self.data) - self.position:
                self.corrupt("its header counts more members than there are bytes")
            for _ in range(count):
                name = self.take(self.long()).decode("utf-8", "replace")
                metadata[name] = self.take(self.long())
        return metadata

    def schema(self, metadata: Mapping[str, bytes]) -> Any:
        text = metadata.get("avro.schema", b"")
        if len(text) > _SCHEMA_BYTES_MAX:
            self.corrupt("its schema is far too large")
        try:
            return _schema_of(text)
        except (ValueError, RecursionError):
            self.corrupt("its header holds no schema")

    def blocks(self, sync: bytes) -> Iterator[Block]:
        while self.position < len(self.data):
            row_count, size = self.long(), self.long()
            if row_count < 0 or size < 0:
                self.corrupt("a block has a negative length")
            block = Block(offset=self.position, size=size, row_count=row_count)
            self.skip(size)
            if self.take(_SYNC_BYTES) != sync:
                self.corrupt("a block does not end with the file's marker")
            yield block


@functools.lru_cache(maxsize=32)
def _schema_of(text: bytes) -> Any:
    return json.loads(text)


def unpacked(
    container: Container, blocks: Sequence[Block] | None = None
) -> Iterator[tuple[Block, bytes]]:
    """Return the blocks (None: all) that hold records, decompressed one at a time.

    The limits are for what is asked for at once.
    """
    limits = container.limits
    remaining = limits.total_bytes + limits.total_bytes_per_stored_byte * len(container.data)
    for block in container.blocks if blocks is None else blocks:
        stored = container.data[block.offset : block.offset + block.size]
        try:
            data = _unpack(stored, container.codec, min(limits.block_bytes, remaining))
        except _TooLarge as cause:
            raise CorruptFileError(
                "a block unfolds into more than such a file can hold",
                file=container.file_name,
                offset=block.offset,
            ) from cause
        except (zlib.error, zstd.ZstdError, pa.ArrowException, ValueError, OSError) as cause:
            raise CorruptFileError(
                f"a block does not decompress as {container.codec}; restore the file",
                file=container.file_name,
                offset=block.offset,
            ) from cause
        remaining -= len(data)
        if block.row_count or data:
            yield block, data


class _TooLarge(Exception):
    """A block's content is larger than its limit."""


def _unpack(stored: bytes, codec: str, limit: int) -> bytes:
    match codec:
        case "deflate":
            inflater = zlib.decompressobj(-15)
            data = inflater.decompress(stored, limit + 1)
            if len(data) <= limit and not inflater.eof:
                raise ValueError("a deflate stream ends early")
        case "snappy":
            data = _unsnappy(stored, limit)
        case "zstandard":
            data = _unzstd(stored, limit)
        case _:
            data = stored
    if len(data) > limit:
        raise _TooLarge
    return data


def _unzstd(stored: bytes, limit: int) -> bytes:
    unpacker = zstd.ZstdDecompressor(options=_ZSTD_OPTIONS)
    data = unpacker.decompress(stored, max_length=limit + 1)
    if len(data) <= limit and not unpacker.eof:
        raise ValueError("a zstd frame ends early")
    return bytes(data)


def _unsnappy(stored: bytes, limit: int) -> bytes:
    """Avro's snappy: one raw snappy block, and the big-endian CRC-32 of its content behind it."""
    size = shift = 0
    for byte in stored[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > limit:
        raise _TooLarge
    data = pa.Codec("snappy").decompress(stored[:-4], decompressed_size=size, asbytes=True)
    if checksum_of(data) != int.from_bytes(stored[-4:], "big"):
        raise ValueError("the checksum differs")
    return bytes(data)


class EncodedContainer(bytes):
    """A new Avro file. `content_bytes`: the size of its records before compression."""

    content_bytes: int


class ContainerEncoder:
    """An encoder of Avro files of one schema: text, header and fastavro's form of the schema are made once."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._headers: dict[str, bytes] = {}

    def record(self, record: Mapping[str, Any]) -> bytes:
        """Return one record as a block holds it, from a mapping of the schema's field names."""
        target = io.BytesIO()
        self._write(target, self._parsed, record, disable_tuple_notation=True)
        return target.getvalue()

    @functools.cached_property
    def _write(self) -> Callable[..., None]:
        return cast("Callable[..., None]", import_module("fastavro").schemaless_writer)

    @functools.cached_property
    def _text(self) -> str:
        return json.dumps(self._schema, separators=(",", ":"))

    @functools.cached_property
    def _parsed(self) -> Any:
        return import_module("fastavro").parse_schema(json.loads(self._text))

    @functools.cached_property
    def _sync(self) -> bytes:
        return hashlib.blake2b(self._text.encode(), digest_size=_SYNC_BYTES).digest()

    def _header(self, codec: str, metadata: Mapping[str, str]) -> bytes:
        if metadata:
            # Other metadata comes with each file; fastavro's writer takes longer than a file of few records.
            pairs = [*metadata.items(), ("avro.codec", codec), ("avro.schema", self._text)]
            texts = (text.encode() for pair in pairs for text in pair)
            content = b"".join(_long(len(text)) + text for text in texts)
            return b"".join((MAGIC, _long(len(pairs)), content, _long(0), self._sync))
        if codec not in self._headers:
            target = io.BytesIO()
            import_module("fastavro").writer(
                target, self._parsed, (), codec=codec, sync_marker=self._sync
            )
            self._headers[codec] = target.getvalue()
        return self._headers[codec]

    def file(
        self,
        records: Iterable[bytes],
        *,
        codec: str = "zstandard",
        level: int | None = None,
        metadata: Mapping[str, str] = MappingProxyType({}),
    ) -> EncodedContainer:
        """Return an Avro file of encoded records.

        `level` is the codec's own, None its default. `metadata`: what the header holds beside codec and schema.
        Equal input gives equal bytes, and files of equal schema, codec and metadata equal headers, so that blocks
        may move between them: the sync marker is derived from the schema, not random.
        Raises UnsupportedError for codecs that are read but not written.
        """
        container = self.begin(codec, level, metadata)
        waiting: list[bytes] = []
        size = 0
        for encoded in records:
            waiting.append(encoded)
            size += len(encoded)
            if size >= BLOCK_BYTES_WRITTEN:
                container.add(b"".join(waiting), len(waiting))
                waiting, size = [], 0
        if waiting:
            container.add(b"".join(waiting), len(waiting))
        return container.end()

    def begin(
        self,
        codec: str,
        level: int | None = None,
        metadata: Mapping[str, str] = MappingProxyType({}),
    ) -> "GrowingContainer":
        """Return a file of no record, which grows by blocks; raises as `file` does."""
        if codec not in CODECS_WRITTEN:
            raise UnsupportedError(
                f"avro codec {codec!r} is not written; choose one of {', '.join(CODECS_WRITTEN)}",
                kind=ErrorKind.UNSUPPORTED_OPTION,
            )
        return GrowingContainer(self._header(codec, metadata), self._sync, codec, level)


class GrowingContainer:
    """An Avro file that grows by blocks. `size`: its bytes so far; `content_bytes`: those of its records."""

    def __init__(self, header: bytes, sync: bytes, codec: str, level: int | None) -> None:
        self._parts = [header]
        self._sync, self._codec, self._level = sync, codec, level
        self.content_bytes = 0
        self.size = len(header)

    def add(self, content: bytes, record_count: int) -> None:
        """Add a block: its records one behind the other, best of BLOCK_BYTES_WRITTEN or a little more."""
        stored = _pack(content, self._codec, self._level)
        parts = (_long(record_count), _long(len(stored)), stored, self._sync)
        self._parts += parts
        self.content_bytes += len(content)
        self.size += sum(map(len, parts))

    def end(self) -> EncodedContainer:
        """Return the file."""
        container = EncodedContainer(b"".join(self._parts))
        container.content_bytes = self.content_bytes
        return container


def codec_named(name: str) -> str:
    """Return the codec that the option manifest.compression names."""
    return _NAMES.get(name, name)


def _pack(data: bytes, codec: str, level: int | None) -> bytes:
    """Return a block's content compressed; `level` None: the codec's default."""
    match codec:
        case "deflate":
            deflater = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, -15)
            return deflater.compress(data) + deflater.flush()
        case "zstandard":
            return zstd.compress(data, level)
        case _:
            return data


def _long(value: int) -> bytes:
    """Return a whole number, not negative, as Avro writes it: zigzag, seven bits a byte."""
    value <<= 1
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)
