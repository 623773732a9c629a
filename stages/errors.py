"""Exceptions that a step of a stage raises."""

from __future__ import annotations

from typing import Any, cast


class SentenceFirst:
    """A base class of errors whose sentence a notebook shows before the frames of the traceback, and not only below."""

    __slots__ = ()

    def _render_traceback_(self) -> list[str]:
        """Returns the lines that IPython prints for the error."""
        from IPython import get_ipython

        shell: Any = get_ipython()
        error = cast(BaseException, self)
        frames = shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
        return [f"{type(error).__name__}: {error}", "", *frames]


class ResultError(ValueError):
    """Raised for a value that does not fit its result column. The stage adds the name of the step."""


class UnreadableState(ResultError):
    """Raised for state that cannot be read. The run stops, since it would lose the state otherwise."""


class StepError(SentenceFirst, RuntimeError):
    """Raised for a value that a step cannot use: the result of a user's function, or a sum that overflows its type.

    `step` is the name of the step.

    Example:
        >>> strict = bl.Pipeline("p", on_error="fail")
        >>> strict.read("rows", bl.Rows([{"n": 3}])).map(lambda row: {"n": "three"}).collect()
        Traceback (most recent call last):
            ...
        stages.errors.StepError: step 'rows.map': ...
    """

    def __init__(self, step: str, message: str) -> None:
        super().__init__(step, message)
        self.step = step

    def __str__(self) -> str:
        return f"step {self.args[0]!r}: {self.args[1]}"
