"""What the operating system gives: locks, files that outlive a power cut, signals, and text safe on a terminal."""
