"""An extension of griffe, the reader of the code for the reference: rewrites docstrings and adds constructors."""

from __future__ import annotations

import contextlib
import inspect
from importlib import import_module
from typing import Any

import attrs
import griffe

from tests.docs.site.docstrings import linked, with_example_section


class Docstrings(griffe.Extension):
    """Completes the entries of public names."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrites the docstring of a module, class or function."""
        if obj.docstring:
            obj.docstring.value = linked(with_example_section(obj.docstring.value))

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Adds a constructor to an attrs class or a named tuple, whose source has none."""
        if "__init__" not in cls.members and _has_made_constructor(cls):
            # A package such as Beam may not be installed for the site, which does not show its classes.
            with contextlib.suppress(ModuleNotFoundError):
                cls.set_member("__init__", _constructor(cls))


def _has_made_constructor(cls: griffe.Class) -> bool:
    decorated = any("attrs" in str(decorator.value) for decorator in cls.decorators)
    return decorated or any(str(base) == "NamedTuple" for base in cls.bases)


def _constructor(cls: griffe.Class) -> griffe.Function:
    made = getattr(import_module(cls.module.path), cls.name)
    parameters = inspect.signature(made).parameters.values()
    return griffe.Function(
        "__init__",
        parameters=griffe.Parameters(
            *(
                griffe.Parameter(
                    parameter.name,
                    annotation=None if parameter.annotation is parameter.empty else str(parameter.annotation),
                    kind=griffe.ParameterKind(parameter.kind.description),
                    default=None if parameter.default is parameter.empty else _default(parameter),
                )
                for parameter in parameters
            )
        ),
    )


def _default(parameter: inspect.Parameter) -> str:
    return "..." if parameter.default is attrs.NOTHING else repr(parameter.default)
