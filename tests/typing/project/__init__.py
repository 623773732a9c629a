"""A user's project with types: all public names are used as their pages say, and `mypy --strict` and pyright pass."""
