"""Commit messages travel: what arrives equals what left, and nothing else can be built."""

import pytest

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.format.commit_message import (
    CommitMessage,
    Committable,
    CompactIncrement,
    DataIncrement,
)
from lsm_engine.format.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta, SimpleStats
from lsm_engine.format.index_file import DeletionVectorMeta, IndexFileMeta
from lsm_engine.format.messages import decode_message, encode_message
from lsm_engine.options.modes import FileSource

FILE = DataFileMeta(
    file_name="data-é-0.parquet", file_size=1, row_count=2, min_key=b"\x00\xff", max_key=b"",
    key_stats=EMPTY_STATS,
    value_stats=SimpleStats(min_values=b"\x01", max_values=b"\x02", null_counts=(1, None)),
    min_sequence_number=0, max_sequence_number=2**62, schema_id=0, level=0,
    extra_files=("a.index",), delete_row_count=0, embedded_index=b"\x00",
    file_source=FileSource.COMPACT, value_stats_columns=(), write_columns=None,
)  # fmt: skip
INDEX = IndexFileMeta(
    index_type="DELETION_VECTORS",
    file_name="index-0",
    file_size=1,
    row_count=1,
    deletion_vectors=(DeletionVectorMeta(data_file_name="d", offset=1, length=22),),
)
MESSAGE = CommitMessage(
    partition=EMPTY_ROW,
    bucket=0,
    total_buckets=-1,
    data=DataIncrement(new_files=(FILE, FILE.rename("b"))),
    compact=CompactIncrement(before=(FILE,), after=(FILE.upgrade(5),), new_index_files=(INDEX,)),
)
COMMITTABLE = Committable(commit_user="u", messages=(MESSAGE, MESSAGE), properties={"a": "b"})


@pytest.mark.parametrize("value", [FILE, INDEX, MESSAGE, MESSAGE.compact, COMMITTABLE])
def test_messages_come_back(value: object) -> None:
    assert decode_message(encode_message(value), type(value)) == value


BROKEN = [
    b"", b"{}", b"[]", b'{"partition": 3}', b'{"partition": "AA==", "bucket": "0"}',
    encode_message(MESSAGE).replace(b'"AP8="', b'"???"'),
    encode_message(MESSAGE).replace(b'"file_source":1', b'"file_source":9'),
    encode_message(MESSAGE).replace(b'"row_count":2', b'"row_count":-2'),
]  # fmt: skip


@pytest.mark.parametrize("data", BROKEN, ids=range(len(BROKEN)))
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptFileError, match="CommitMessage"):
        decode_message(data, CommitMessage)
