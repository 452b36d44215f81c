"""What comments and pages refer to is there: sections, decisions, files, modules."""

import ast
import re
from functools import cache
from pathlib import Path

import lsm_engine

ROOT = Path(lsm_engine.__file__).parent.parent
DOCS = ROOT / "lsm_engine" / "docs"
TEXTS = [
    path
    for folder in ("lsm_engine", "lsm_assets", "tests")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".md"} and "fixtures" not in path.parts
] + [ROOT / "README.md"]
ROOMS = sorted(
    path.name
    for path in (ROOT / "lsm_engine").iterdir()
    if path.is_dir()
    and path.name not in {"docs", "lsm", "__pycache__"}  # `lsm/…` are keys of metadata in Dagster
)
MODULE = re.compile(rf"`(?:lsm_engine/)?((?:{'|'.join(ROOMS)})(?:/[a-z]\w*)+)\b(?![/\w-])")
QUALIFIED = re.compile(r"`(?:lsm_engine\.)?([a-z]\w*(?:\.[a-z]\w*)*)\.([a-z]+_\w+)`")
LINK = re.compile(r"\]\((?!https?:|#|data:|mailto:)([^)\s#]+)")


@cache
def lines() -> list[tuple[str, str]]:
    return [
        (f"{path.relative_to(ROOT)}:{number}", line)
        for path in TEXTS
        if path.name != Path(__file__).name
        for number, line in enumerate(path.read_text().splitlines(), 1)
    ]


@cache
def sections(page: str) -> set[str]:
    return set(re.findall(r"^## (\d+)\.", (DOCS / page).read_text(), re.MULTILINE))


def test_sections_of_pages_are_there() -> None:
    wrong = [
        f"{where}: {kind} section {number}"
        for where, line in lines()
        for kind, number in re.findall(r"\b(format|semantics) section (\d+)", line)
        if number not in sections(f"{kind}s.md" if kind == "format" else "semantics.md")
    ]
    assert not wrong


def test_decisions_are_there() -> None:
    there = {int(path.name[:4]) for path in (DOCS / "decisions").glob("[0-9]*.md")}
    wrong = [
        f"{where}: decision {number}"
        for where, line in lines()
        for number in re.findall(r"\bdecisions?[ /](\d{1,4})\b", line)
        if int(number) not in there
    ]
    assert not wrong


def test_documents_that_a_stranger_does_not_have_are_not_referred_to() -> None:
    foreign = re.compile(
        r"\b(FEATURES|STYLE|TESTPLAN|HOUSE)(\.md)? (section|list|item)|\bFORMAT section"
    )
    assert not [where for where, line in lines() if foreign.search(line)]


def test_modules_that_texts_name_are_there() -> None:
    wrong = []
    for where, line in lines():
        for named in MODULE.findall(line) if "/" in line else ():
            path = ROOT / "lsm_engine" / named
            module, attribute = path.with_suffix(".py"), path.parent.with_suffix(".py")
            if not (path.is_dir() or module.exists() or attribute.exists()):
                wrong.append(f"{where}: {named}")
    assert not wrong


def test_functions_that_texts_name_with_a_module_are_defined_there() -> None:
    """`module.function` in the text of a module: of a function of the product, in a module that has it."""
    modules = [
        path for room in ("lsm_engine", "lsm_assets") for path in (ROOT / room).rglob("*.py")
    ]
    homes: dict[str, set[str]] = {}
    for path in modules:
        for name in re.findall(r"^def ([a-z]\w+)", path.read_text(), re.MULTILINE):
            # `lsm` is what pages import the engine as; a package may offer what its modules define.
            homes.setdefault(name, {"lsm"}).update((path.stem, *path.parent.parts))
    wrong = [
        f"{where}: {module}.{name}"
        for where, line in lines()
        if where.partition("/")[0] in {"lsm_engine", "lsm_assets"} and ".py:" in where
        for module, name in QUALIFIED.findall(line)
        if name in homes and module.rpartition(".")[2] not in homes[name]
    ]
    assert not wrong


def names_in(module: Path) -> set[str]:
    """Return what a module defines: functions, classes, their methods, and names that it assigns."""
    found: set[str] = set()
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (each for each in node.body if isinstance(each, ast.FunctionDef))
            found |= {f"{node.name}.{each.name}" for each in methods}
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {each.id for each in targets if isinstance(each, ast.Name)}
    return found


def test_names_that_the_architecture_page_gives_with_a_module_are_defined_there() -> None:
    """In `module` (`name`, `Class.method`), and where a table says `NAME` in `module`."""
    page = (DOCS / "architecture.md").read_text()
    named = [
        (module, name)
        for module, inside in re.findall(r"`([a-z_]+(?:/\w+)+)` \(([^)]*`[^)]*)\)", page)
        for name in re.findall(r"`([A-Za-z_][\w.]*)`", inside)
    ]
    turned = re.findall(r"`(\w+)`(?: \([^)]*\))? (?:in|of) `([a-z_]+(?:/\w+)+)`", page)
    named += [(module, name) for name, module in turned]
    assert len(named) > 70
    wrong = []
    for module, name in named:
        path = (ROOT / "lsm_engine" / module).with_suffix(".py")
        if path.exists() and name not in names_in(path):
            wrong.append(f"{module}: {name}")
    assert not wrong


def test_no_text_has_the_marks_of_an_unfinished_merge() -> None:
    assert not [where for where, line in lines() if re.match(r"(<{7}|>{7}|\|{7}) |={7}$", line)]


def test_links_of_pages_lead_somewhere() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in TEXTS
        if path.suffix == ".md"
        for target in LINK.findall(path.read_text())
        if not (path.parent / target).exists()
    ]
    assert not wrong
