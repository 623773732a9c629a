"""The calls that declare a pipeline, in order. `Pipeline.to_yaml` writes them as a file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from beamlike.logical.node import Node


@attrs.frozen(eq=False)
class Call:
    """A call of a function or method that declares a step: the function, its arguments, and the node that it made."""

    function: Callable[..., Any]
    positional: tuple[Any, ...]
    named: Mapping[str, Any]
    made: Node

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.function.__name__

    def arguments(self) -> Mapping[str, Any]:
        """Returns the arguments by the names of their parameters, as `inspect.BoundArguments` has them."""
        return inspect.signature(self.function).bind(*self.positional, **self.named).arguments

    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """Returns the parameters of the function by name."""
        return inspect.signature(self.function).parameters
