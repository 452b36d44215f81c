"""An option that several verbs have is declared once, so that it means and says the same everywhere."""

import ast
from collections import defaultdict
from pathlib import Path

COMMANDS = Path(__file__).parents[3] / "lsm_engine" / "cli"


def test_no_option_is_declared_twice_alike() -> None:
    found = defaultdict(set)
    for path in COMMANDS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "click.option":
                found[ast.unparse(node)].add(f"{path.name}:{node.lineno}")
    assert len(found) > 80
    assert {text: places for text, places in found.items() if len(places) > 1} == {}
