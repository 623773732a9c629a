"""A source that a test writes step by step."""
