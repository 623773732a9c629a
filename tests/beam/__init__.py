"""Beam's own test suites on `BeamlikeRunner`, in an environment of their own (`make test-beam`)."""
