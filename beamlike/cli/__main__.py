"""`python -m beamlike.cli` is the command `beamlike`."""

from beamlike.cli.main import main

main()
