"""Numbers of examples: a share or a multiple of the number in the Hypothesis profile, which scales all tests."""

from __future__ import annotations

from hypothesis import settings


def share(of: int) -> settings:
    """One example where the profile has `of`, and never less than three, as the first one is the simplest there is."""
    return settings(max_examples=max(3, settings().max_examples // of))


def times(number: float) -> int:
    """Returns a multiple of the profile's number of examples, for tests that draw their examples themselves."""
    return max(3, round(number * settings().max_examples))


def skipped() -> int:
    """Returns the step with which a slow test goes through a long list: 1 in a thorough run, else 3."""
    return 1 if settings().max_examples >= 1_000 else 3
