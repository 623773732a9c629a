"""Fields and values of pydantic models. Pydantic is never imported here unless the user's code has imported it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any, Final

import attrs
import polars as pl

_FORMATS: Final = {"date-time": pl.Datetime("us", "UTC"), "date": pl.Date(), "time": pl.Time()}
_KINDS: Final = {
    "string": pl.String(),
    "integer": pl.Int64(),
    "number": pl.Float64(),
    "boolean": pl.Boolean(),
}


def is_model(kind: object) -> bool:
    """True for a class of pydantic models."""
    main = sys.modules.get("pydantic.main")  # without it there is no model
    return main is not None and isinstance(kind, type) and issubclass(kind, main.BaseModel)


def model_fields(kind: Any) -> Iterator[tuple[str, str, Any, Any]]:
    """Yields (name, column, annotation, default) of each field; the column is the alias, if there is one."""
    if not kind.__pydantic_complete__:
        kind.model_rebuild()
    for name, field in kind.model_fields.items():
        annotation = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        default = attrs.NOTHING if field.is_required() else field
        yield name, _column(kind, name, field), annotation, default


def _column(kind: type, name: str, field: Any) -> str:
    read, written = field.validation_alias or name, field.serialization_alias or name
    if read != written:
        raise TypeError(
            f"{kind.__name__}.{name} is read as {read!r} and written as {written!r}, and a column has one name; "
            "give it an alias= for both"
        )
    return str(read)


def is_special(kind: object) -> bool:
    """True for a type that pydantic defines and that replaces a Python type, such as `AwareDatetime`."""
    return isinstance(kind, type) and kind.__module__.partition(".")[0] == "pydantic"


def dtype_of_special(kind: type) -> pl.DataType:
    """Returns the column type for a type of pydantic. It is String if pydantic writes the value to JSON as text."""
    from pydantic import TypeAdapter

    schema = TypeAdapter(kind).json_schema(mode="serialization")
    found = _FORMATS.get(schema.get("format", "")) or _KINDS.get(schema.get("type", ""))
    if found is None or schema.get("writeOnly"):  # a secret is not shown
        raise TypeError(f"{kind.__name__} of pydantic has no column type")
    return found


def validation_text(error: BaseException) -> str | None:
    """Returns the errors of pydantic's `ValidationError` in a line; None for another error."""
    if type(error).__module__.partition(".")[0] != "pydantic_core" or not hasattr(error, "errors"):
        return None
    given: Any = error
    found = given.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, (given.title, *one['loc'])))}: {one['msg']}" for one in found)
