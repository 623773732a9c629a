"""What a step raises where a result is none that it can give."""

from __future__ import annotations


class ResultError(ValueError):
    """A value that the column of a result cannot hold; the stage says in which step."""


class StepError(RuntimeError):
    """A step got a value that it cannot use: from a user's function, or a sum that its type cannot hold."""

    def __init__(self, step: str, message: str) -> None:
        super().__init__(step, message)
        self.step = step

    def __str__(self) -> str:
        return f"step {self.args[0]!r}: {self.args[1]}"
