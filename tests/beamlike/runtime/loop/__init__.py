"""Tests of the loop of a run."""
