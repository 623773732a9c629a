"""Hypothesis profiles, chosen by HYPOTHESIS_PROFILE.

`default`: two fifths of the examples; `full`: all, for the run of a change (`.ci/run`); `ci`: as `default`, always the
same examples; `small`: an example that fails is made as small as it can be, which may take minutes for each, so others
only show the seed with which to run it again; `thorough`: many. A test that wants more or fewer takes a multiple or a
share of the number, so that a profile scales all of them.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

from tests.support.spark_fixtures import spark

__all__ = ["spark"]

settings.register_profile(
    "small", max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "full",
    settings.get_profile("small"),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target],
)
settings.register_profile("default", settings.get_profile("full"), max_examples=12)
settings.register_profile("ci", settings.get_profile("full"), max_examples=12, derandomize=True)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))
