"""Tests of connectors against real servers, which they start and stop."""
