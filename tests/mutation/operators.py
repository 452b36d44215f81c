"""Small changes to a module's syntax tree: each is a mutant that some unit test or case has to notice.

What is changed: comparisons (boundary and negation), conditions (always, never), and/or and their
terms, arithmetic, terms of unions, differences and displays, parts of keys, whole numbers and booleans,
min/max and any/all, orderings, optional arguments of calls, early ends of loops, single statements.
What is not: texts, annotations, assertions and what a raised error says.
"""

import ast
import inspect
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from types import ModuleType

_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_CALCULATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_TERMS = (ast.BitOr, ast.BitAnd, ast.Sub)
_RENAMED = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, eq=False)
class Mutant:
    """One change of one module: `new` stands where `old` stood, `parent.field` or an item of it."""

    module: str
    function: str
    parent: ast.AST
    field: str
    index: int | None
    old: ast.AST
    new: ast.AST
    lines: range
    name: str

    @property
    def key(self) -> str:
        """What the mutant is called, wherever in its file it stands."""
        return f"{self.module.removeprefix('lsm_engine.')}.{self.name}"

    @property
    def place(self) -> str:
        """The module's file and the line."""
        return f"{self.module.replace('.', '/')}.py:{self.lines.start}"

    def apply(self) -> None:
        """Put the new node into the tree."""
        self._put(self.new)

    def undo(self) -> None:
        """Put the old node back."""
        self._put(self.old)

    def _put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def mutants_of(module: ModuleType, tree: ast.Module) -> list[Mutant]:
    """Return every mutant of a module, in the order of its lines; `tree` is its source, parsed."""
    found: list[Mutant] = []
    names: dict[str, int] = {}
    for site in _sites(tree):
        for new in _changes(site.node, module):
            name = f"{site.function}: {_shown(site.node, new)}"
            names[name] = count = names.get(name, 0) + 1
            found.append(
                Mutant(
                    module=module.__name__,
                    function=site.function,
                    parent=site.parent,
                    field=site.field,
                    index=site.index,
                    old=site.node,
                    # A part of the old node may be the new one: its own place has to stay.
                    new=ast.fix_missing_locations(ast.copy_location(copy(new), site.node)),
                    lines=site.lines,
                    name=name if count == 1 else f"{name} ({count})",
                )
            )
    return found


def _shown(old: ast.AST, new: ast.AST) -> str:
    """Return a change as short text: only what differs of a call's arguments or a statement's body."""
    match old, new:
        case (ast.If(), ast.If()) | (ast.IfExp(), ast.IfExp()):
            return f"if {_text(old.test)} -> if {_text(new.test)}"
        case ast.Call(), ast.Call() if len(new.keywords) < len(old.keywords):
            left = {part.arg for part in new.keywords}
            gone = [part for part in old.keywords if part.arg not in left]
            return f"{_text(old.func)}({', '.join(map(_text, gone))}) -> {_text(new.func)}()"
        case _:
            return f"{_text(old)} -> {_text(new)}"


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


@dataclass(frozen=True)
class _Site:
    node: ast.AST
    parent: ast.AST
    field: str
    index: int | None
    function: str
    lines: range


def _sites(tree: ast.Module) -> Iterator[_Site]:
    """Yield the nodes that may change, with what stands around them."""
    yield from _inside(tree, "", range(0))


def _inside(parent: ast.AST, function: str, lines: range) -> Iterator[_Site]:
    for field, value in ast.iter_fields(parent):
        if _stays(parent, field):
            continue
        several = isinstance(value, list)
        for index, node in enumerate(value if several else [value]):
            if not isinstance(node, ast.AST) or isinstance(node, ast.JoinedStr | ast.Assert):
                continue
            if isinstance(parent, ast.ClassDef) and isinstance(node, ast.AnnAssign):
                continue  # a field; its default stands in a generated __init__
            inner, own = function, lines
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                inner = f"{function}.{node.name}".removeprefix(".")
            elif isinstance(node, ast.stmt):
                head = node.body[0].lineno if getattr(node, "body", None) else None
                own = range(node.lineno, max(head or node.end_lineno + 1, node.lineno + 1))
            yield _Site(node, parent, field, index if several else None, inner or "module", own)
            if not isinstance(node, ast.Raise):
                yield from _inside(node, inner, own)


def _stays(parent: ast.AST, field: str) -> bool:
    """Whether a part of a node is no behaviour: annotations, decorators, names of patterns."""
    if field in ("annotation", "returns", "decorator_list", "bases", "pattern", "args", "ctx"):
        return not (field == "args" and isinstance(parent, ast.Call))
    is_type = isinstance(parent, ast.Assign | ast.AnnAssign) and _is_type(parent)
    return is_type or (isinstance(parent, ast.ClassDef) and field != "body")


def _is_type(node: ast.Assign | ast.AnnAssign) -> bool:
    """Whether a statement names a type."""
    if isinstance(node, ast.AnnAssign):
        return "TypeAlias" in ast.unparse(node.annotation)
    name = ast.unparse(node.targets[0]).strip("_")
    is_type = name[:1].isupper() and not name.isupper()
    return is_type and isinstance(node.value, ast.Subscript | ast.BinOp)


def _changes(node: ast.AST, module: ModuleType) -> Iterator[ast.AST]:
    match node:
        case ast.Compare():
            yield from _compared(node)
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield ast.BoolOp(op=other, values=node.values)
            for at in range(len(node.values)):
                rest = [*node.values[:at], *node.values[at + 1 :]]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(op=node.op, values=rest)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.UnaryOp(op=ast.USub()) if not isinstance(node.operand, ast.Constant):
            yield node.operand
        case ast.UnaryOp(op=ast.Invert()):
            yield node.operand
        case ast.BinOp():
            if isinstance(node.op, _TERMS):
                yield node.left
            if isinstance(node.op, ast.BitOr | ast.BitAnd):
                yield node.right
            if type(node.op) in _CALCULATED:
                yield ast.BinOp(left=node.left, op=_CALCULATED[type(node.op)](), right=node.right)
        case ast.If() | ast.IfExp():
            for always in (True, False):
                kind = type(node)
                yield kind(test=ast.Constant(always), body=node.body, orelse=node.orelse)
        case ast.comprehension() if node.ifs:
            for at in range(len(node.ifs)):
                rest = [*node.ifs[:at], *node.ifs[at + 1 :]]
                yield ast.comprehension(node.target, node.iter, rest, node.is_async)
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield ast.Constant(node.value + 1)
            yield ast.Constant(node.value - 1)
        case ast.Call():
            yield from _called(node, module)
        case ast.Tuple(ctx=ast.Load()) | ast.List(ctx=ast.Load()) | ast.Set():
            yield from _displayed(node)
        case ast.Break():
            yield ast.Pass()
        case ast.Continue():
            yield ast.Pass()
            yield ast.Break()
        case ast.AugAssign():
            yield ast.Pass()
        case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()):
            yield ast.Pass()


def _compared(node: ast.Compare) -> Iterator[ast.AST]:
    for at, op in enumerate(node.ops):
        for other in _COMPARED[type(op)]:
            ops = [*node.ops[:at], other(), *node.ops[at + 1 :]]
            yield ast.Compare(left=node.left, ops=ops, comparators=node.comparators)


def _called(node: ast.Call, module: ModuleType) -> Iterator[ast.AST]:
    name = node.func.id if isinstance(node.func, ast.Name) else None
    if name in _RENAMED:
        yield ast.Call(
            func=ast.Name(id=_RENAMED[name], ctx=ast.Load()), args=node.args, keywords=node.keywords
        )
    if name in ("sorted", "reversed") and node.args:
        kept = [part for part in node.keywords if part.arg != "key"] if name == "sorted" else []
        plain = ast.Name(id="list" if not kept else name, ctx=ast.Load())
        yield ast.Call(func=plain, args=node.args, keywords=kept)
    for at, part in enumerate(node.keywords):
        if part.arg is not None and name is not None and _is_optional(module, name, part.arg):
            rest = [*node.keywords[:at], *node.keywords[at + 1 :]]
            yield ast.Call(func=node.func, args=node.args, keywords=rest)


def _is_optional(module: ModuleType, function: str, argument: str) -> bool:
    """Whether a call may leave an argument out, so that forgetting it is no error of its own."""
    called = getattr(module, function, None)
    if called is None or not getattr(called, "__module__", "").startswith("lsm_engine"):
        return False
    known = inspect.signature(called).parameters.get(argument)
    return known is not None and known.default is not inspect.Parameter.empty


def _displayed(node: ast.Tuple | ast.List | ast.Set) -> Iterator[ast.AST]:
    """Forget what is spread into a display; forget a part of a key."""
    starred = any(isinstance(part, ast.Starred) for part in node.elts)
    if len(node.elts) < 2:
        return
    for at, part in enumerate(node.elts):
        if isinstance(part, ast.Constant):
            continue
        middle = [] if starred else [ast.Constant(None)]
        elements = [*node.elts[:at], *middle, *node.elts[at + 1 :]]
        if isinstance(node, ast.Set):
            yield ast.Set(elts=elements)
        else:
            yield type(node)(elts=elements, ctx=ast.Load())
