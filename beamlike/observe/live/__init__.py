"""The live page about runs: a server for a browser. May import what `observe` may."""
