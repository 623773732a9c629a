"""Errors on the command line. If the user can correct the cause, the message is printed without a traceback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from beamlike.errors import CheckpointError, PlanError, RecordsInUse, RunError, StepError, ViewError
from beamlike.system.printable import printable

_OURS = (
    *(PlanError, StepError, RunError, CheckpointError, RecordsInUse, ViewError),
    *(FileNotFoundError, FileExistsError),
)


def plainly(action: Callable[[], Any]) -> Any:
    """Runs the action, and returns its result. If it raises an error of this package, or one of a missing or existing
    file, the command ends with the error's message, without a traceback.
    """
    try:
        return action()
    except _OURS as error:
        raise click.ClickException(printable(str(error), keep="\n\t")) from None
