"""Suggestions for mistyped names."""

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the name in `names` most similar to a name, regardless of case; None if none is similar.

    `cutoff`: how much alike they have to be; 1 is the same.
    """
    by_case = {candidate.lower(): candidate for candidate in names}
    nearest_name = difflib.get_close_matches(name.lower(), by_case, n=1, cutoff=cutoff)
    return by_case[nearest_name[0]] if nearest_name else None


def did_you_mean(name: str, names: Iterable[str], otherwise: str = "", cutoff: float = 0.6) -> str:
    """Return "; did you mean 'x'?" for the nearest of `names`, else `otherwise`."""
    suggestion = nearest(name, names, cutoff)
    return f"; did you mean {suggestion!r}?" if suggestion else otherwise


def no_column(name: str, columns: Iterable[str]) -> str:
    """Return the suggestion for a column that does not exist, behind "; "; empty if no column is similar."""
    names = list(columns)
    parts = [part.strip() for part in name.split(",")]
    if name == "*":
        return "; leave columns= out to read them all"
    if any(operator in name for operator in "<>="):
        return "; a condition is where="
    if len(parts) > 1 and set(parts) <= set(names):
        return f"; several are a list, {parts}"
    if name.partition(".")[0] in names:
        return f"; a nested field is read with its column, {name.partition('.')[0]!r}"
    return did_you_mean(name, names)
