"""The command line, `beamlike`. May import `spec` and all below it."""
