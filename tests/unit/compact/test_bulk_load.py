"""The first load of a bucket is not rewritten by the first compaction after it."""

import pyarrow as pa
import pytest

import lsm_engine as lsm

OPTIONS = {"bucket": "1", "target-file-size": "64 kb", "write-only": "true"}


def rows(start, stop, value):
    keys = list(range(start, stop))
    # What does not repeat does not compress: the load has to fill files.
    texts = [f"{value}-{key * 2654435761 % 2**32:x}-{key * 40503 % 65521:x}" for key in keys]
    return pa.table({"k": pa.array(keys, pa.int64()), "v": texts})


@pytest.fixture
def table(tmp_path):
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
    made = catalog.create_table(
        "default.t", rows(0, 1, "").schema, primary_key=["k"], options=OPTIONS
    )
    made.upsert(rows(0, 20_000, "load"))
    return made


def files(table):
    return {row["file_path"]: row["level"] for row in table.system("files").to_pylist()}


def expected(batches):
    state = dict(zip(*rows(0, 20_000, "load").to_pydict().values(), strict=True))
    for start in range(batches):
        state |= dict(zip(*rows(start, start + 300, f"u{start}").to_pydict().values(), strict=True))
    return state


def test_the_load_stays_as_it_is_and_the_rest_is_merged_above(table):
    loaded = {name for name, level in files(table).items() if level == 0}
    for start in range(5):
        table.upsert(rows(start, start + 300, f"u{start}"))
    assert table.compact().commit_kind.value == "COMPACT"
    after = files(table)
    kept = loaded & set(after)
    assert kept
    assert all(after[name] == 5 for name in kept)
    assert 0 not in after.values()
    read = table.scan().to_arrow().to_pydict()
    assert dict(zip(read["k"], read["v"], strict=True)) == expected(5)
    assert not table.verify().problems


def test_a_full_compaction_still_rewrites_it(table):
    table.upsert(rows(0, 20_000, "u"))
    loaded = set(files(table))
    table.compact(full=True)
    assert not loaded & set(files(table))


def test_deletes_keep_the_load_from_moving(table):
    """A delete that came to the last level as it is would never go again."""
    table.delete(rows(0, 20_000, "load"))
    table.overwrite(rows(0, 1, "load"))
    for start in range(5):
        keys = rows(start, start + 20_000, "load")
        # `delete` would commit nothing, as no key is there.
        table.upsert(keys.append_column("_row_kind", pa.array(["-D"] * keys.num_rows)))
    table.compact()
    assert table.tree() == []
