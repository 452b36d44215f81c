"""A writer as a project's own module would hold it; `test_component` names it in YAML."""

import dagster as dg
import pyarrow as pa


def two_orders(context: dg.AssetExecutionContext, table: object) -> pa.Table:
    amounts = pa.array(["1.00", "2.50"]).cast(pa.decimal128(10, 2))
    days = ["2024-01-01", "2024-01-02"]
    return pa.table({"order_id": [1, 2], "dt": days, "amount": amounts})
