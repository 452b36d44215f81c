"""Tables of any number of data files, of which only the metadata exists: nothing opens the files.

Manifest entries have the same length and differ in a few fields only, so they are made as rows of a
byte matrix: one entry encoded by the engine, stamped a million times, then its fields written over.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from backports import zstd

import lsm_engine as lsm
from lsm_engine.format.binary_row import encode_stored
from lsm_engine.format.data_file import SimpleStats
from lsm_engine.format.manifest import ManifestEntry, ManifestFileMeta
from lsm_engine.format.manifest_file import encode_manifest
from tests.bench.tables import new_table

COLUMNS = pa.schema(
    [("dt", pa.string()), ("id", pa.int64())]
    + [(f"n{at}", pa.int64()) for at in range(8)]
    + [(f"s{at}", pa.string()) for at in range(5)]
    + [(f"x{at}", pa.float64()) for at in range(5)]
)
BUCKETS = 10
FILES_PER_BUCKET = 100
IDS_PER_FILE = 1_000
ENTRIES_PER_MANIFEST = 5_000
_ENTRIES_PER_BLOCK = 100
_DAY, _NAME = "PPPPPPPPPP", "F" * 36
_LOW, _HIGH = 0x1111111111111111, 0x2222222222222222
_SYNC_BYTES = 16


@dataclass(frozen=True)
class ManyFiles:
    """A table of metadata. `day` is one of its partitions; `day` and `ids` choose a few files."""

    path: str
    file_count: int
    partition_count: int
    day: str
    ids: tuple[int, int]


def many_files(
    folder: Path, file_count: int, *, random_values: bool = False, **options: str
) -> ManyFiles:
    """Make a table of so many data files, all compacted: days x 10 buckets x up to 100 files.

    With `random_values` names and ids are those of no order, so that manifests compress as real ones do.
    """
    table = new_table(
        folder,
        COLUMNS,
        key=("dt", "id"),
        options={"bucket": str(BUCKETS), **options},
        partitioned_by=("dt",),
    )
    row = {name: _sample(field.type) for name, field in zip(COLUMNS.names, COLUMNS, strict=True)}
    table.upsert([{**row, "dt": _DAY, "id": 1}])
    template = _Template(table, _entry(table))
    metas = [
        template.write(
            start, min(start + ENTRIES_PER_MANIFEST, file_count), random_values=random_values
        )
        for start in range(0, file_count, ENTRIES_PER_MANIFEST)
    ]
    session, first = table.session, table.latest_snapshot()
    assert first is not None
    base_list = session.manifests.write_list("manifest-list-many-0", metas, codec="zstd")
    delta_list = session.manifests.write_list("manifest-list-many-1", [], codec="zstd")
    published = session.snapshots.publish(
        replace(
            first,
            id=first.id + 1,
            uuid="many",
            properties={},  # without the base that the snapshot before names
            base_manifest_list="manifest-list-many-0",
            base_manifest_list_size=base_list.size,
            delta_manifest_list="manifest-list-many-1",
            delta_manifest_list_size=delta_list.size,
            total_record_count=file_count * IDS_PER_FILE,
            delta_record_count=0,
        )
    )
    assert published
    partitions = -(-file_count // (BUCKETS * FILES_PER_BUCKET))
    return ManyFiles(
        path=table.location,
        file_count=file_count,
        partition_count=partitions,
        day=day_text(partitions // 2),
        ids=(10 * IDS_PER_FILE, 13 * IDS_PER_FILE - 1),
    )


def day_text(number: int) -> str:
    """Return the name of a partition; all are of one length."""
    return f"day-{number:06}"


def _sample(kind: pa.DataType) -> object:
    return "some text" if pa.types.is_string(kind) else 1.5 if pa.types.is_floating(kind) else 7


def _entry(table: lsm.Table) -> ManifestEntry:
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    (entry,) = table.session.live_entries(snapshot)
    keys = [_id_row(table, number) for number in (_LOW, _HIGH)]
    old = _id_value(1)
    file = replace(
        entry.file,
        file_name=f"data-{_NAME}-0.parquet",
        min_key=keys[0],
        max_key=keys[1],
        key_stats=SimpleStats(min_values=keys[0], max_values=keys[1], null_counts=(0,)),
        value_stats=replace(
            entry.file.value_stats,
            min_values=entry.file.value_stats.min_values.replace(old, _id_value(_LOW)),
            max_values=entry.file.value_stats.max_values.replace(old, _id_value(_HIGH)),
        ),
        level=5,
        file_size=100_000_000,
        row_count=IDS_PER_FILE,
        delete_row_count=0,
    )
    return replace(entry, file=file)


def _id_value(number: int) -> bytes:
    return number.to_bytes(8, "little")


def _id_row(table: lsm.Table, number: int) -> bytes:
    (field,) = table.schema.select(("id",))
    return encode_stored([pa.array([number], pa.int64())], [field.type])[0]


class _Template:
    """One entry as bytes, and where its fields lie."""

    def __init__(self, table: lsm.Table, entry: ManifestEntry) -> None:
        self._table = table
        plain = _container(entry)
        self._header, record = _opened(plain)
        self._record = np.frombuffer(record, np.uint8)
        other = _opened(_container(replace(entry, bucket=entry.bucket ^ 1)))[1]
        self._bucket_at = int(np.flatnonzero(self._record != np.frombuffer(other, np.uint8))[0])
        self._places = {
            what: _all_of(record, text)
            for what, text in (
                ("day", _DAY.encode()),
                ("name", _NAME.encode()),
                ("low", _id_value(_LOW)),
                ("high", _id_value(_HIGH)),
            )
        }
        assert all(self._places.values())
        partition_fields = table.schema.select(("dt",))
        self._day_type = [partition_fields[0].type]

    def write(self, start: int, stop: int, *, random_values: bool) -> ManifestFileMeta:
        """Write the manifest of some files and return what a list says of it."""
        numbers = np.arange(start, stop)
        days = numbers // (BUCKETS * FILES_PER_BUCKET)
        buckets = numbers // FILES_PER_BUCKET % BUCKETS
        lows = (numbers % FILES_PER_BUCKET) * IDS_PER_FILE
        names = np.char.mod(b"%036d", numbers).astype("S36")
        if random_values:
            chance = np.random.default_rng(start)
            lows = chance.integers(0, 1 << 62, len(numbers))
            names = np.frombuffer(chance.bytes(18 * len(numbers)).hex().encode(), "S36")
        matrix = np.tile(self._record, (len(numbers), 1))
        matrix[:, self._bucket_at] = 2 * buckets  # Avro's numbers, zigzag
        for what, texts in (
            ("day", np.array([day_text(day).encode() for day in days.tolist()])),
            ("name", names),
            ("low", lows.astype("<i8")),
            ("high", (lows + IDS_PER_FILE - 1).astype("<i8")),
        ):
            block = np.ascontiguousarray(texts).view(np.uint8).reshape(len(numbers), -1)
            for place in self._places[what]:
                matrix[:, place : place + block.shape[1]] = block
        name = f"manifest-many-{start}"
        data = self._blocks(matrix)
        path = Path(self._table.location) / "manifest" / name
        path.write_bytes(data)
        bounds = encode_stored(
            [pa.array([day_text(int(days[0])), day_text(int(days[-1]))])], self._day_type
        )
        return ManifestFileMeta(
            file_name=name,
            file_size=len(data),
            added_file_count=len(numbers),
            deleted_file_count=0,
            partition_stats=SimpleStats(
                min_values=bounds[0], max_values=bounds[1], null_counts=(0,)
            ),
            schema_id=0,
            min_bucket=int(buckets.min()),
            max_bucket=int(buckets.max()),
            min_level=5,
            max_level=5,
        )

    def _blocks(self, matrix: np.ndarray) -> bytes:
        sync = self._header[-_SYNC_BYTES:]
        parts = [self._header]
        for at in range(0, len(matrix), _ENTRIES_PER_BLOCK):
            some = matrix[at : at + _ENTRIES_PER_BLOCK]
            packed = zstd.compress(some.tobytes())
            parts += [_varint(len(some)), _varint(len(packed)), packed, sync]
        return b"".join(parts)


def _container(entry: ManifestEntry) -> bytes:
    return encode_manifest([entry], codec="zstandard")


def _opened(container: bytes) -> tuple[bytes, bytes]:
    """Return the header, sync marker included, and the one record in the one block."""
    sync = container[-_SYNC_BYTES:]
    header = container[: container.index(sync) + _SYNC_BYTES]
    body = container[len(header) : -_SYNC_BYTES]
    count, at = _read_varint(body, 0)
    size, at = _read_varint(body, at)
    assert (count, size) == (1, len(body) - at)
    return header, zstd.decompress(body[at:])


def _all_of(record: bytes, text: bytes) -> list[int]:
    places, at = [], record.find(text)
    while at >= 0:
        places.append(at)
        at = record.find(text, at + len(text))
    return places


def _varint(number: int) -> bytes:
    number, out = number << 1, bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number >> 1, at
