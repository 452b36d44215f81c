"""What tests of lookups share: tables with each kind of lookup file, and rows to compare."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from lsm_engine.cache.disk import DiskCache
from lsm_engine.lookup.lookup import TableQuery
from lsm_engine.storage.clock import SystemClock
from lsm_engine.table.session import TableSession

KINDS = ("columnar", "sort", "hash")


def with_options(session, **texts):
    """The same table, as if its options said so (dots are spelled __)."""
    changes = {key.replace("__", ".").replace("_", "-"): value for key, value in texts.items()}
    schema = replace(session.schema, options=session.schema.options.with_texts(changes))
    return TableSession(session.name, session.components, schema)


def query_of(table, kind, tmp_path, **texts):
    """A query with lookup files of a kind in a directory of its own."""
    cache = DiskCache(SystemClock(), str(tmp_path / f"cache-{kind}"))
    session = with_options(table.session, **{"lookup__local_file_type": kind, **texts})
    return TableQuery(session, cache)


def assert_lookups_equal_scan(query, table, absent=None, seed=0):
    """Every key that a scan sees is found with the scan's row; the others are not found."""
    schema = table.schema
    scanned = table.scan().to_arrow()
    keys = scanned.select(list(schema.primary_keys))
    if absent is not None:
        keys = pa.concat_tables([keys, absent.cast(keys.schema)])
    order = np.random.default_rng(seed).permutation(keys.num_rows)
    found = query.lookup(keys.take(pa.array(order)))
    back = np.argsort(order, kind="stable")
    ordered = found.take(pa.array(back))
    flags = ordered.column("_found").to_pylist()
    assert flags == [True] * scanned.num_rows + [False] * (keys.num_rows - scanned.num_rows)
    assert (
        ordered.slice(0, scanned.num_rows)
        .drop_columns("_found")
        .equals(scanned.cast(ordered.drop_columns("_found").schema))
    )
    others = [name for name in schema.names if name not in schema.primary_keys]
    for name in others:
        assert (
            ordered.column(name).slice(scanned.num_rows).null_count
            == keys.num_rows - scanned.num_rows
        )
