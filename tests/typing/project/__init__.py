"""A typed user project that uses all public names as their pages say, and passes `mypy --strict` and pyright."""
