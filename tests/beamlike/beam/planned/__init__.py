"""Tests of Beam pipelines that are executed as plans."""
