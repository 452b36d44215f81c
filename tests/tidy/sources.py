"""The product's modules as syntax trees, parsed once for all rules about the source."""

import ast
from functools import cache
from pathlib import Path

import lsm_engine

ROOT = Path(lsm_engine.__file__).parent.parent


@cache
def trees() -> dict[str, ast.Module]:
    """Return the tree of each module by its path below the repository, such as `lsm_engine/api/table.py`."""
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text())
        for package in ("lsm_engine", "lsm_assets")
        for path in sorted((ROOT / package).rglob("*.py"))
    }


@cache
def nodes() -> dict[str, list[ast.AST]]:
    """Return all nodes of each module by its path: walking the trees takes longer than parsing them."""
    return {name: list(ast.walk(tree)) for name, tree in trees().items()}
