"""What a step raises where a result is none that it can give."""

from __future__ import annotations


class ResultError(ValueError):
    """A value that the column of a result cannot hold; the stage says in which step."""


class UnreadableState(ResultError):
    """State that cannot be read, so that going on would lose it: the run stops."""


class StepError(RuntimeError):
    """A step got a value that it cannot use: from a user's function, or a sum that its type cannot hold.

    `step` is its name.

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
