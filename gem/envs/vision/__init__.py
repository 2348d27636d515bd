"""Questions about pictures that a program draws, so that the answer is known exactly."""
