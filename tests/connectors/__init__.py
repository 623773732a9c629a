"""Connectors against the servers that they are for: these are started here, and stopped at the end."""
