"""The runner in this process."""
