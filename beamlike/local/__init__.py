"""The runner in this process. May import `runtime` and all below it."""
