"""Errors on the command line: those that say what the user can do are printed without a traceback."""

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
    """Runs the action; errors that say what the user can do are printed without a traceback."""
    try:
        return action()
    except _OURS as error:
        raise click.ClickException(printable(str(error), keep="\n\t")) from None
