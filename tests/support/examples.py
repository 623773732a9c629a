"""How many examples the dear tests of Hypothesis try: a share of the profile's number, so that it scales them all."""

from __future__ import annotations

from hypothesis import settings


def share(of: int) -> settings:
    """One example where the profile has `of`, and never less than three, as the first one is the simplest there is."""
    return settings(max_examples=max(3, settings().max_examples // of))
