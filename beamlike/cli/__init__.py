"""The command line, `beamlike`."""
