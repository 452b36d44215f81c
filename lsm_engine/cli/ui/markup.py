"""HTML made of values: whatever is not markup already is escaped, and links stay on this server."""

import html
from collections.abc import Iterable, Mapping
from urllib.parse import quote, urlencode

from lsm_engine.cli.safe_text import cell_text

_VOID = frozenset({"input", "link", "meta"})
_ADDRESSES = frozenset({"href", "src", "action"})


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def escaped(value: object) -> Html:
    """Return a value as markup: nothing for None, its escaped text if it is not markup already.

    Control characters, and those that turn text round, are spelt out.
    """
    if isinstance(value, Html):
        return value
    return Html("" if value is None else html.escape(cell_text(value)))


def joined(children: Iterable[object]) -> Html:
    """Return values one after another, lists among them spread."""
    return Html(
        "".join(
            joined(child) if isinstance(child, list | tuple) else escaped(child)
            for child in children
        )
    )


def element(name: str, /, *children: object, **attributes: object) -> Html:
    """Return an element. Of an attribute `class_` means class, `aria_label` aria-label.

    None and False leave an attribute out, True gives it no value; lists among the children are spread.
    Raises ValueError for an address that leads elsewhere.
    """
    pairs = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Html(f"<{name}{pairs}>")
    return Html(f"<{name}{pairs}>{joined(children)}</{name}>")


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if name in _ADDRESSES and not _is_here(str(value)):
        raise ValueError(f"an address has to begin with one slash or #: {value!r}")
    return f" {name}" if value is True else f' {name}="{escaped(value)}"'


def _is_here(url: str) -> bool:
    return url.startswith("#") or (url.startswith("/") and not url.startswith(("//", "/\\")))


def address(*parts: object, query: Mapping[str, object] | None = None, fragment: str = "") -> str:
    """Return the address of a page: parts are encoded one by one; `at` is encoded after "#"."""
    path = "/" + "/".join(quote(str(part), safe="@") for part in parts)
    parameters = {key: value for key, value in (query or {}).items() if value not in (None, "")}
    return (
        path
        + (f"?{urlencode(parameters)}" if parameters else "")
        + (f"#{fragment}" if fragment else "")
    )


def table_address(name: str, *parts: object, query: Mapping[str, object] | None = None) -> str:
    """Return the address of a page of a table: `/t/shop.orders/snapshot/12`."""
    return address("t", name, *parts, query=query)


def lineage_address(name: str, snapshot_id: int | None = None, *, window: int | None = None) -> str:
    """Return the address of a table's or branch's lineage, opened at a snapshot if one is given; `window`: about which."""
    fragment = "" if snapshot_id is None else f"{quote(name, safe='')}/{snapshot_id}"
    return address("lineage", query={"table": name, "at": window}, fragment=fragment)
