"""Default values of columns: text in the schema, a value of the column's type where rows leave it null."""

import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.schema.arrow_types import arrow_type
from lsm_engine.schema.types import DataField, ScalarType, type_text


def default_of(field: DataField) -> pa.Scalar | None:
    """Return a column's default value; None without one.

    Raises InvalidInputError, naming the column, for text that is no value of the column's type.
    """
    if field.default_value is None:
        return None
    if isinstance(field.type, ScalarType):
        try:
            text = pa.array([field.default_value], pa.string())
            return text.cast(arrow_type(field.type))[0]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass
    raise InvalidInputError(
        f"column {field.name!r} of type {type_text(field.type)} cannot have the default "
        f"{field.default_value!r}",
        kind=ErrorKind.INVALID_SCHEMA,
        column=field.name,
        default=field.default_value,
    )
