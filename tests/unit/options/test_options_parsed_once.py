"""The text of an option is parsed once, however often it is read."""

import pickle
import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.format.documents import decode_schema
from lsm_engine.options import core_options
from lsm_engine.options.option import Option
from lsm_engine.options.table_options import foreign_options, given_options

TEXTS = {
    "bucket": "1",
    "target-file-size": "64 mb",
    "file.compression": "zstd",
    "manifest.compression": "none",
    "num-sorted-run.compaction-trigger": "3",
    "snapshot.num-retained.max": "50",
    "metadata.stats-mode": "full",
}


@pytest.fixture
def parsed(monkeypatch):
    """How often the text of each option has been parsed."""
    counted = Counter()
    parse = Option.parsed

    def counting(option, text):
        counted[option.key] += 1
        return parse(option, text)

    monkeypatch.setattr(Option, "parsed", counting)
    return counted


def test_commits_and_scans_of_one_schema_parse_each_option_once(tmp_path: Path, parsed):
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path))
    rows = pa.table({"k": pa.array(range(20)), "v": pa.array(range(20))})
    catalog.create_table("d.t", rows.schema, primary_key=["k"], options=TEXTS)
    parsed.clear()
    decode_schema.cache_clear()  # else the schema is known by its bytes, and nothing is parsed
    table = catalog.table("d.t")
    for _ in range(4):  # the third makes a compaction due
        table.upsert(rows)
        assert table.scan().to_arrow().num_rows == 20
    assert parsed == dict.fromkeys(TEXTS, 1)


def test_an_alias_and_its_option_are_parsed_once_each(parsed):
    option = core_options.WRITE_ONLY
    alias_alone = given_options({option.aliases[0]: "true"})
    both = given_options({option.key: "false", option.aliases[0]: "true"})
    for _ in range(3):
        both.require_writable()
        alias_alone.require_writable()
        assert both[option] is False
        assert alias_alone[option] is True
    assert parsed[option.key] == 3


def test_a_text_that_does_not_parse_is_refused_at_each_read():
    options = foreign_options({"bucket": "many"})
    for _ in range(2):
        with pytest.raises(InvalidOptionError, match="'bucket' cannot be 'many'"):
            options[core_options.BUCKET]


def test_what_was_read_is_no_part_of_the_value():
    read, fresh = given_options(TEXTS), given_options(TEXTS)
    assert read[core_options.BUCKET] == 1
    assert read == fresh
    assert repr(read) == repr(fresh)
    copied = pickle.loads(pickle.dumps(read))
    assert copied == read
    assert copied[core_options.BUCKET] == 1
    assert read.with_texts({"bucket": "3"})[core_options.BUCKET] == 3


def test_threads_that_read_at_once_get_one_value():
    options = given_options({"sequence.field": "a,b"})
    start, found = threading.Barrier(8), []

    def read():
        start.wait()
        found.append(options[core_options.SEQUENCE_FIELD])

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == ("a", "b")
    assert len({id(value) for value in found}) == 1
