"""Pictures of runs in docs/pictures that move, as SVG without a script. Where motion is not wanted, all is shown."""
