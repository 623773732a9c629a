"""The flagship job in other frameworks: scripts for separate environments, without this project."""
