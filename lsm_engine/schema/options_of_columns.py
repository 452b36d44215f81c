"""Options that name columns: which ones do, and what they are when a column is renamed."""

from lsm_engine.base import core_options

_STATS = ".stats-mode"
_LISTS = (
    core_options.BUCKET_KEY.key,
    core_options.SEQUENCE_FIELD.key,
    core_options.CHANGELOG_ROW_DEDUPLICATE_IGNORE_FIELDS.key,
    core_options.PARTIAL_UPDATE_REMOVE_ON_GROUP.key,
)
_SINGLES = (core_options.ROWKIND_FIELD.key, core_options.RECORD_LEVEL_TIME_FIELD.key)
_PREFIX = "fields."
_GROUP = ".sequence-group"
_OF_FIELDS = ("nested-key", "nested-sequence-field", "ts-field")
_BY_FIELDS = _OF_FIELDS[1:]
"""Options whose text names fields within the column of their key, and those of them that are orders."""
_EXTREMES = ("max", "min")


def names_column(key: str, text: str, column: str) -> bool:
    """Whether an option names a column, or a field within one, in its key or in its value.

    A field is named by its path, such as `lines.element.id`.
    """
    return with_name(key, text, column, "\0") != (key, text)


def relies_on(key: str, text: str, column: str) -> bool:
    """Whether something is made of a column's values by an option; statistics are not."""
    return names_column(key, text, column) and not key.endswith(_STATS)


def orders_by_column(key: str, text: str, column: str) -> bool:
    """Whether by an option the order of a column's values decides which row, or which value, stands."""
    if key == core_options.SEQUENCE_FIELD.key:
        return names_column(key, text, column)
    if key == core_options.DEFAULT_AGGREGATE_FUNCTION.key:
        return text in _EXTREMES
    if key.endswith(_BY_FIELDS):
        return names_column(key, text, column)
    is_of_column = with_name(key, "", column, "\0")[0] != key
    return is_of_column and (key.endswith(_GROUP) or text in _EXTREMES)


def with_name(key: str, text: str, old: str, new: str) -> tuple[str, str]:
    """Return an option with `old` replaced where it names that column or field."""
    if key in _SINGLES:
        return key, new if text == old else text
    if key in _LISTS:
        return key, _in_list(text, old, new)
    if not key.startswith(_PREFIX) or key.count(".") < 2:
        return key, text
    columns, suffix = key[len(_PREFIX) :].rsplit(".", 1)
    if suffix in _OF_FIELDS:
        for step in ("element", "value"):
            within = f"{columns}.{step}."
            text = _in_list(text, old.removeprefix(within), new) if old.startswith(within) else text
    renamed = f"{_PREFIX}{_in_list(columns, old, new)}.{suffix}"
    return renamed, _in_list(text, old, new) if key.endswith(_GROUP) else text


def _in_list(text: str, old: str, new: str) -> str:
    parts = text.split(",")
    return ",".join(new if part.strip() == old else part for part in parts)
