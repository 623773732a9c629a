"""`python -m beamlike` is the command `beamlike`."""

from beamlike.cli.main import main

if __name__ == "__main__":
    main(prog_name="beamlike")
