"""Listagg: texts joined by a delimiter."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bools
from lsm_engine.merge.aggregators.aggregator import Aggregator, refuse_retracts
from lsm_engine.merge.aggregators.entries import codes_of, first_of_equals
from lsm_engine.merge.versions import Computed, Folded, Versions, kept_offsets


@record
class ListAgg(Aggregator):
    """Texts that are not blank, joined in order. `distinct` adds only tokens that are not there yet.

    Tokens are what the delimiter separates, compared whole; those of the first text all stay.
    """

    delimiter: str = ","
    distinct: bool = False

    def fold(self, versions: Versions, name: str) -> Folded:
        """See Aggregator."""
        refuse_retracts(versions, name, "listagg")
        column = versions.column(name)
        valid_texts = versions.filtered(_has_text(column))
        texts, offsets = valid_texts.column(name), valid_texts.offsets
        if self.distinct:
            texts, offsets = self._tokens(texts, valid_texts)
        lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), texts)
        joined = pc.binary_join(lists, self.delimiter)
        empty = pa.array(np.diff(valid_texts.offsets) == 0)
        return Computed(values=pc.if_else(empty, pa.scalar(None, column.type), joined))

    def _tokens(self, texts: pa.Array, versions: Versions) -> tuple[pa.Array, np.ndarray]:
        split = pc.split_pattern(texts, self.delimiter)
        tokens = split.flatten()
        counts = pc.list_value_length(split).to_numpy()
        rows = np.repeat(np.arange(len(texts)), counts)
        groups = versions.group_of_each[rows]
        fresh = first_of_equals(groups, codes_of(tokens)) & _has_text(tokens)
        # A group's first text is kept unchanged: it may be the result of an earlier merge.
        survives = fresh | (rows == versions.offsets[:-1][groups])
        ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))[versions.offsets]
        return tokens.filter(pa.array(survives)), kept_offsets(ends, survives)


def _has_text(texts: pa.Array) -> Bools:
    """Return which texts are neither null nor blank."""
    blank = pc.equal(pc.utf8_trim_whitespace(texts), "")
    flags: Bools = ~np.asarray(pc.fill_null(blank, True))  # noqa: FBT003
    return flags
