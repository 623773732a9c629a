"""Tests on other Spark versions than the installed one."""
