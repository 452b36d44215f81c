"""Claims on files of branches: what they hold, and what a file under one reads as."""

import pytest

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.metadata.publishing import RENAMING, Claim, claim_in, unclaimed
from lsm_engine.storage.paths import TablePaths
from lsm_engine.testing.memory_file_io import MemoryFileIO

PATHS = TablePaths(branch_name="x")
FILE = PATHS.snapshot_file(1)
OURS = Claim(claim_id="ours", reason="deleting", before=b"5")
NEW = Claim(claim_id="ours", reason="making")


@pytest.fixture
def disk():
    return MemoryFileIO()


@pytest.mark.parametrize(
    "before", [None, b"", b"5", '{"a": "ü\n\\"}'.encode(), bytes(range(256)), b"\xff\xfe" * 9]
)
def test_what_a_file_held_comes_back_as_it_was(before):
    claim = Claim(claim_id="id", reason="making", before=before)
    assert claim_in(claim.encoded(), file_name="f") == claim


def test_other_contents_are_no_claims():
    for data in (b"", b"5", b"{}", b'{"id": 1}', b"\xff"):
        assert claim_in(data, file_name="f") is None


@pytest.mark.parametrize(
    "data", [b'{"lsm-claim":', b'{"lsm-claim": 1}', b'{"lsm-claim": 1, "reason": 2, "before": ']
)
def test_a_damaged_claim_is_named(data):
    with pytest.raises(CorruptFileError, match="not well formed"):
        claim_in(data, file_name="f")


@pytest.mark.parametrize(
    ("first", "read_as", "is_put_back"),
    [
        (OURS.encoded(), None, False),
        (Claim(claim_id="another", reason="making").encoded(), b"5", False),
        (Claim(claim_id="ours", reason=RENAMING, before=b"{}").encoded(), b"5", False),
        (b"{}", b"5", True),
        (None, b"5", False),
    ],
    ids=["in force", "another's", "being renamed", "a schema", "nothing"],
)
def test_a_claim_is_in_force_only_where_schema_0_holds_the_same(disk, first, read_as, is_put_back):
    if first is not None:
        disk.write_new(PATHS.schema_file(0), first)
    disk.write_new(FILE, OURS.encoded())
    assert unclaimed(disk, PATHS, FILE, OURS.encoded()) == read_as
    assert disk.read(FILE) == (b"5" if is_put_back else OURS.encoded())


def test_a_file_that_was_not_there_goes_again(disk):
    disk.write_new(PATHS.schema_file(0), b"{}")
    disk.write_new(FILE, NEW.encoded())
    assert unclaimed(disk, PATHS, FILE, NEW.encoded()) is None
    assert not disk.exists(FILE)


def test_schema_0_is_there_while_a_rename_is_decided(disk):
    first = PATHS.schema_file(0)
    renaming = Claim(claim_id="ours", reason=RENAMING, before=b"{}")
    assert unclaimed(disk, PATHS, first, renaming.encoded()) == b"{}"
    assert unclaimed(disk, PATHS, first, OURS.encoded()) is None
