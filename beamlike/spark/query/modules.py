"""Finds the modules of a plan's functions, whose code must be shipped to workers."""

from __future__ import annotations

import io
from typing import Any

from pyspark.cloudpickle import CloudPickler

from beamlike.io.sinks import written_by_tasks
from beamlike.plan.model import Plan
from beamlike.spark.query.unpicklable import unpicklable


class _Witness(CloudPickler):
    """A pickler like Spark's that records the module of every function and class."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())  # type: ignore[no-untyped-call]  # pyspark's copy has no types
        self.modules: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        module = getattr(obj if hasattr(obj, "__qualname__") else type(obj), "__module__", None)
        if isinstance(module, str):
            self.modules.add(module)
        return super().reducer_override(obj)  # type: ignore[no-untyped-call]


def modules_of(plan: Plan) -> set[str]:
    """Returns the modules that a worker needs to unpickle this plan: those of users' functions, CombineFns and sinks.

    Raises `WrongType` (a `TypeError`), which names step and variable, for an object that cannot be pickled.
    """
    witness = _Witness()
    sinks = {name: sink.sink for name, sink in plan.sinks.items() if written_by_tasks(sink.sink)}
    try:
        witness.dump((plan.sources, plan.stages, sinks))  # type: ignore[no-untyped-call]
    except Exception as error:  # pickling a user's objects may raise anything
        raise unpicklable(plan, error) from error
    return witness.modules
