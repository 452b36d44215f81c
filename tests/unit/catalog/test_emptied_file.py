"""A SQLite catalog whose file was truncated to nothing says so at once, and blames no lock."""

import os
import time

import pytest

import lsm_engine as lsm


@pytest.fixture
def catalog(tmp_path):
    with lsm.open_catalog(tmp_path) as opened:
        opened.create_table("a.t", {"k": "INT"}, primary_key="k").upsert([{"k": 1}])
        os.truncate(tmp_path / "catalog.db", 0)
        yield opened


def test_the_program_that_has_it_open_is_told(catalog):
    with pytest.raises(lsm.CorruptFileError, match=r"is empty.*catalog rebuild"):
        catalog.list_tables()


def test_another_program_is_told_and_does_not_wait_for_a_lock(catalog, tmp_path):
    start = time.monotonic()
    with pytest.raises(lsm.CorruptFileError, match=r"is empty.*catalog rebuild"):
        lsm.open_catalog(tmp_path).list_tables()
    assert time.monotonic() - start < 10


def test_an_empty_file_that_nobody_has_open_begins_a_catalog(tmp_path):
    (tmp_path / "catalog.db").touch()
    with lsm.open_catalog(tmp_path) as opened:
        assert opened.list_tables() == []
