"""The flagship job in other frameworks: scripts for environments of their own, which have none of this project."""
