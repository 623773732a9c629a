"""Errors on the command line. If the user can correct the cause, the message is printed without a traceback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from beamlike.errors import CheckpointError, PlanError, RecordsInUse, RunError, StepError, ViewError
from beamlike.system.printable import printable
from beamlike.system.secrets import without_secrets

TROUBLESHOOTING: Final = "docs/troubleshooting.md has the usual causes, by symptom"

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
        more = f"\n{TROUBLESHOOTING}" if isinstance(error, RunError | CheckpointError) else ""
        raise click.ClickException(printable(without_secrets(str(error)), keep="\n\t") + more) from None
