"""A clock that stands still until a test moves it."""


class Clock:
    """In place of `time.monotonic` or `time.perf_counter`."""

    def __init__(self, now=1000.0):
        self.now = now

    def __call__(self):
        return self.now

    def advance(self, seconds):
        self.now += seconds
