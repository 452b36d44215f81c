"""Loops over many rows are compiled, wherever the number of rows stands among their arguments."""

import sys
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.kernels import compiled
from lsm_engine.kernels.compiled import Kernel

ROWS = 120_000
LINES_PER_STEP = 12


@pytest.mark.parametrize("key", [pa.int64(), pa.string()])
def test_no_loop_over_many_rows_is_interpreted(tmp_path: Path, key: pa.DataType) -> None:
    """Lines that Python runs in one call of each kernel, in a write, compaction, lookup, changelog."""
    lines: dict[str, int] = {}
    interpret = Kernel.interpret

    def counted(kernel: Kernel, *arguments: Any) -> Any:
        count = 0

        def line(_frame: FrameType, event: str, _value: object) -> Any:
            nonlocal count
            count += event == "line"
            return line

        before = sys.gettrace()
        sys.settrace(line)
        try:
            return interpret(kernel, *arguments)
        finally:
            sys.settrace(before)
            name = f"{kernel._loop.__module__}.{kernel._loop.__name__}"
            lines[name] = max(count, lines.get(name, 0))

    catalog = lsm.open_catalog(warehouse=str(tmp_path))
    schema = pa.schema([pa.field("k", key, nullable=False), pa.field("v", pa.int64())])
    table = catalog.create_table(
        "db.t", schema, primary_key=["k"],
        options={"bucket": "1", "changelog-producer": "lookup"},
    )  # fmt: skip
    keys = pa.array(np.random.default_rng(3).permutation(ROWS) + 10**7).cast(key)
    rows = pa.table({"k": keys, "v": pa.array(np.arange(ROWS))})
    limit = 20_000
    with (
        mock.patch.object(Kernel, "spent_by_all", 0),
        mock.patch.object(Kernel, "interpret", counted),
        mock.patch.object(compiled, "CALL_LIMIT", limit),  # benches leave another one behind
    ):
        for kernel in kernels():
            kernel._spent, kernel._is_compiled = 0, False
        table.upsert(rows)
        table.upsert(rows.slice(0, ROWS // 2))
        table.compact(full=True)
        assert table.lookup(rows.select(["k"]).slice(100, ROWS // 2)).num_rows == ROWS // 2
        table.delete(rows.select(["k"]).slice(0, ROWS // 3))
        assert table.scan().count() == ROWS - ROWS // 3
    assert lines, "few rows were not interpreted either"
    long = {name: count for name, count in lines.items() if count > LINES_PER_STEP * limit}
    assert not long


@pytest.mark.parametrize(
    ("is_loaded", "is_kept", "budget"),
    [
        (False, False, compiled.BUDGET), (False, True, compiled.LLVM_BUDGET),
        (True, False, compiled.LOADED_BUDGET), (True, True, compiled.KEPT_BUDGET),
    ],
)  # fmt: skip
def test_loops_are_compiled_sooner_where_that_costs_less(
    is_loaded: bool, is_kept: bool, budget: int
) -> None:
    """A file with the machine code costs less than a compiler, and what is loaded costs nothing."""

    def loop(rows: Any) -> str:
        return "interpreted"

    some = [Kernel(loop, None, None) for _ in range(2)]
    steps = np.zeros(budget // 2 // 10, np.int64)
    machine_loop = mock.Mock(return_value="compiled")
    machine_loop.is_kept.return_value = is_kept
    with (
        mock.patch.object(Kernel, "spent_by_all", 0),
        mock.patch.object(compiled, "CALL_LIMIT", budget),
        mock.patch.object(Kernel, "compiled", return_value=machine_loop),
        mock.patch.object(compiled, "is_loaded", return_value=is_loaded),
    ):
        ran = [kernel(steps) for kernel in some * 10]
        assert ran == ["interpreted"] * 20, "each spends half of a budget"
        assert some[0](steps) == ("interpreted" if is_loaded else "compiled")
        assert {some[0](steps) for _ in range(11)} >= {"compiled"}


def kernels() -> list[Kernel]:
    """All kernels, to be asked anew which form their input is worth."""
    found = {
        id(value): value
        for module in list(sys.modules.values())
        if getattr(module, "__name__", "").startswith("lsm_engine.")
        for value in vars(module).values()
        if isinstance(value, Kernel)
    }
    return list(found.values())
