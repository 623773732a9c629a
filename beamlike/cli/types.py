"""Types of options of the command line: durations and triggers."""

from __future__ import annotations

from typing import Any

import click

from beamlike.cli.settings import duration
from windowing.triggers.base import Trigger


class DurationType(click.ParamType[int]):
    """A type of options: a duration, which is converted to microseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class TriggerType(click.ParamType[Trigger]):
    """A type of options: a trigger, written as in Python."""

    name = "trigger"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Trigger:
        from beamlike.spec.constructors import BadConstructor, Refused, construct

        try:
            return construct(value, Trigger, 1_000_000)  # type: ignore[no-any-return]
        except (BadConstructor, Refused) as error:
            self.fail(str(error), param, ctx)
