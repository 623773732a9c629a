"""Tests on other versions of Spark than the one that is installed."""
