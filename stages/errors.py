"""The errors of a step."""

from __future__ import annotations


class ResultError(ValueError):
    """A value that the column of a result cannot hold; the stage adds the name of the step."""


class UnreadableState(ResultError):
    """State that cannot be read. The run stops, as it would lose the state otherwise."""


class StepError(RuntimeError):
    """A value that a step cannot use: from a user's function, or a sum that its type cannot hold.

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
