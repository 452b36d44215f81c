"""Each mode is decided in one place: elsewhere code asks its policy, or matches every member."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import lsm_engine
from lsm_engine.options import modes

ROOT = Path(lsm_engine.__file__).parent.parent
POLICIES = ("MergeEngine", "BucketMode", "ChangelogProducer", "FileFormat", "IndexType")
POLICIES += ("LookupFileType",)
HOME = "lsm_engine/options/modes.py"


def sources() -> Iterator[tuple[str, ast.Module]]:
    for package in ("lsm_engine", "lsm_assets"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if (name := path.relative_to(ROOT).as_posix()) != HOME:
                yield name, ast.parse(path.read_text())


def is_member(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in POLICIES
        and node.attr.isupper()
    )


def comparisons(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            for part in (node.left, *node.comparators):
                inside = part.elts if isinstance(part, ast.Tuple | ast.List | ast.Set) else [part]
                if any(is_member(one) for one in inside):
                    yield node.lineno


def open_matches(tree: ast.Module) -> Iterator[int]:
    """Matches on members that leave the others to `case _`, or to nobody by a guard."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Match):
            continue
        values = [one for case in node.cases for one in ast.walk(case.pattern)]
        if not any(isinstance(one, ast.MatchValue) and is_member(one.value) for one in values):
            continue
        for case in node.cases:
            wild = isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None
            if wild or case.guard is not None:
                yield node.lineno


def test_no_mode_is_compared_outside_of_its_home() -> None:
    wrong = [
        f"{name}:{line}"
        for name, tree in sources()
        for line in [*comparisons(tree), *open_matches(tree)]
    ]
    assert not wrong


@pytest.mark.parametrize("text", ["x is MergeEngine.FIRST_ROW", "x in (BucketMode.FIXED,)"])
def test_a_comparison_is_found(text: str) -> None:
    assert list(comparisons(ast.parse(text)))


def test_a_match_that_leaves_members_to_anybody_is_found() -> None:
    text = "match x:\n    case FileFormat.ORC:\n        pass\n    case _:\n        pass\n"
    assert list(open_matches(ast.parse(text)))


@pytest.mark.parametrize("name", POLICIES)
def test_every_member_has_a_policy(name: str) -> None:
    members = list(getattr(modes, name))
    assert len({member.policy for member in members}) > 1
    assert all(member.policy == member.policy for member in members)
