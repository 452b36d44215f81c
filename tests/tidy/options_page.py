"""The options page, docs/options.md, from the declarations; a test keeps the two equal."""

from collections.abc import Iterator
from enum import Enum
from typing import Any

from lsm_engine.base.units import format_bytes
from lsm_engine.options import core_options
from lsm_engine.options.foreign import OTHER_FAMILIES, OTHER_OPTIONS, OtherOption
from lsm_engine.options.option import FieldOption, Option

_HEAD = """# Table options

Generated from `lsm_engine/options/core_options.py` and `other_options.py`; rewrite with
`pytest tests/tidy/test_options_page.py --rewrite`.

Names and defaults are Apache Paimon's. An option that is not in this first list is refused when a
table is created or altered; the second list sorts those of other clients. *Not yet* marks options
whose other values are refused by name: a table that needs them is not created, and one that another
client made is not read (or not written) wrongly.
*Fixed* options cannot change once a table has data.

| option | default | supported | meaning |
|---|---|---|---|
"""


_OTHERS = """
## Options of other clients

What becomes of tables that another client made with options that are not supported here. *Refuses* is
by name, before anything is read or written. An option in neither list refuses writing, and reading
warns, once for a table; `lsm verify` and `lsm show schema` list them all.

| option | what it does to us | because |
|---|---|---|
"""


def options_page() -> str:
    """Return the whole page as Markdown."""
    rows = [_row(option) for _, option in sorted(core_options.BY_KEY.items())]
    rows += [_field_row(option) for option in core_options.FIELD_OPTIONS]
    return _HEAD + "\n".join(rows) + "\n" + _OTHERS + _others()


def _row(option: Option[Any]) -> str:
    also = f" Also read as {_codes(option.aliases)}." if option.aliases else ""
    fixed = " *Fixed.*" if option.immutable else ""
    return (
        f"| `{option.key}` | {_default(option)} | {_supported(option)} "
        f"| {_cell(option.doc)}{fixed}{also} |"
    )


def _field_row(option: FieldOption) -> str:
    supported = "yes" if option.supported else "not yet"
    return (
        f"| `{option.prefix}<column>.{option.suffix}` | none | {supported} | {_cell(option.doc)} |"
    )


def _default(option: Option[Any]) -> str:
    if option.default_text is not None:
        return _cell(option.default_text)
    value = option.default
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return str(value.value)
    if value is None or value == ():
        return "none"
    if isinstance(value, int) and value >= 1 << 20 and value % (1 << 20) == 0:
        return format_bytes(value).lower()
    return _cell(str(value))


def _supported(option: Option[Any]) -> str:
    if option.supported is None:
        return "yes"
    values = list(_supported_members(option))
    return ", ".join(values) if values else "not yet"


def _supported_members(option: Option[Any]) -> Iterator[str]:
    """The words of a closed vocabulary that are supported, where there is one."""
    if isinstance(option.default, Enum):
        for member in type(option.default):
            if option.is_supported(member):
                yield str(member.value)


def _codes(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _others() -> str:
    """Return the table of these options, and of the families that share a beginning, as Markdown."""
    rows = [f"| `{key}` | {_verdict(OTHER_OPTIONS[key])} |" for key in OTHER_OPTIONS]
    rows += [f"| `{family}…` | {_verdict(of)} |" for family, of in OTHER_FAMILIES.items()]
    return "\n".join(rows) + "\n"


def _verdict(option: OtherOption) -> str:
    but = "".join(f", unless `{value}`" for value in option.harmless_values if value)
    return f"{option.verdict.value}{but} | {option.reason}"
