"""The classes of which a file makes objects: those that are for pipelines, so that a file cannot call just anything."""

from __future__ import annotations

import inspect
from dataclasses import is_dataclass
from typing import Any, Final

import attrs

from beamlike.io.base import WrittenBySpark
from beamlike.spec.document import Item
from stages.aggregates.combine_fn import CombineFn
from stages.custom import CustomOperator
from stages.process.declarations import Process
from stages.strategies.base import WatermarkStrategy
from windowing.triggers.base import Trigger
from windowing.windows import WindowFn

_BASES: Final = (WindowFn, Trigger, WatermarkStrategy, Process, CustomOperator, CombineFn)


def require_made_in_files(found: Any, name: str, item: Item) -> None:
    """Raises `BadFile` unless `found`, which the text `module:name` names, is a class for pipelines.

    This is checked before the class is called: `{"os:system": command}` must not run a command.
    """
    if not isinstance(found, type):
        raise item.fault(
            f"{name} is no class; a file makes objects of classes, and names functions without arguments"
        )
    if not _is_for_pipelines(found):
        raise item.fault(
            f"{name} is a class of another kind; a file makes objects of sources, sinks, windows, triggers, watermark "
            "strategies, processes, CombineFns, attrs classes, dataclasses, and classes with __call__"
        )


def _is_for_pipelines(kind: type) -> bool:
    if issubclass(kind, _BASES) or attrs.has(kind) or is_dataclass(kind):
        return True
    is_source = all(hasattr(kind, name) for name in ("bounded", "schema"))
    is_function = inspect.isfunction(inspect.getattr_static(kind, "__call__", None))
    return is_source or is_function or issubclass(kind, WrittenBySpark) or _is_sink(kind)


def _is_sink(kind: type) -> bool:
    """True for a class with `write(frame, part)`. Files of Python have a method `write`, too."""
    write = getattr(kind, "write", None)
    return inspect.isfunction(write) and "part" in inspect.signature(write).parameters
