"""The step of a collection that runs a user's own operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import attrs

from beamlike.api.handle import Handle
from beamlike.errors import PlanError, WrongType
from beamlike.logical.applied import applied
from stages.custom import CustomOperator


@attrs.frozen(eq=False, repr=False)
class OperatorSteps(Handle):
    """The step of a collection that runs a user's own operator."""

    def apply(
        self,
        operator: CustomOperator,
        *,
        others: Mapping[str, Handle] | None = None,
        name: str | None = None,
    ) -> Self:
        """Sends the rows to an operator of your own, which keeps state and follows the watermark. Experimental.

        Args:
            operator: An object of a class that extends `bl.CustomOperator` (see docs/operators.md).
            others: Collections for the operator's other inputs, by role (the name of the input).
            name: The name of the step, and of its state.

        Returns:
            The rows that the operator emits.

        Raises:
            PlanError: The operator lacks a member, does not fit the columns of its inputs, or emits other columns than
                it declares.
        """
        step, _ = self._new_name("apply", name)
        nodes = {}
        for role, other in (others or {}).items():
            if not isinstance(other, Handle):
                raise WrongType(f"others={{{role!r}: ...}} must be a collection, not {other!r}", step=step)
            if other.pipeline is not self.pipeline:
                raise PlanError(
                    f"others={{{role!r}: ...}} is of pipeline {other.pipeline.name!r}, and the rows are of "
                    f"{self.pipeline.name!r}",
                    step=step,
                )
            nodes[role] = self.pipeline.latest(other.node)
        return self._after(applied(self.node, operator, nodes, step))
