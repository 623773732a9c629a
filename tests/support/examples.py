"""Numbers of Hypothesis examples, as a share or a multiple of the number in the profile, which scales all tests."""

from __future__ import annotations

from hypothesis import settings


def share(of: int) -> settings:
    """Returns settings with 1 / `of` of the profile's examples, but at least three: the first is always trivial."""
    return settings(max_examples=max(3, settings().max_examples // of))


def times(number: float) -> int:
    """Returns a multiple of the profile's number of examples, for tests that draw their examples themselves."""
    return max(3, round(number * settings().max_examples))


def skipped() -> int:
    """Returns the step with which a slow test samples a long list: 1 in a thorough run, else 3."""
    return 1 if settings().max_examples >= 1_000 else 3
