"""docs/python.md runs as it stands: the examples in order, then what stands right in its table."""

import re
from decimal import Decimal
from pathlib import Path

import lsm_engine as lsm

PAGE = Path(lsm.__file__).parent / "docs" / "python.md"
ROWS = [{"order_id": 7, "customer": "Cy", "price": Decimal("1.00")}]


def test_the_examples_and_every_line_of_the_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    names = {}
    for example in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(example, names)
    assert names["expensive"].height == 1
    assert names["catalog"].list_tables() == ["shop.orders"]
    names |= {"rows": ROWS}
    table = text.partition("## Coming from elsewhere")[2]
    right = [line.split(" | ")[-1].strip(" |") for line in table.splitlines() if line[:3] == "| `"]
    ran = 0
    for cell in right:
        for verb in re.findall(r"`([^`]+)`", cell):
            call = verb if verb.startswith(("orders", "catalog")) else f"orders.{verb}"
            if verb != "append(rows)":  # the table has a key
                exec(call, names)
                ran += 1
    assert ran >= len(right) > 15
    assert "note" in names["orders"].schema.names
