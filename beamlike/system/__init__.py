"""What the operating system gives: locks, files that outlive a power cut, signals, and text that is safe on a terminal."""
