"""The server's counters, in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

HELP = {
    "sessions_opened_total": "Sessions that were opened.",
    "sessions_closed_total": "Sessions that were closed, for whatever reason.",
    "sessions_expired_total": "Sessions that nobody used for the length of their lease.",
    "sessions_refused_total": "Sessions that there was no room for.",
    "requests_refused_total": "Requests without the token, or from a page of another site.",
    "answers_repeated_total": "Requests that came again and were answered from memory.",
    "calls_slowed_total": "Calls that waited because their session asked faster than the rate.",
    "no_verdict_total": "Calls that ended an episode without verdict.",
    "records_lost_total": "Records of MCP clients' episodes that could not be written.",
}
"""The counters without labels; they are shown even at 0."""


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        """Start all counters at 0."""
        self._counts: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._errors: Counter[str] = Counter()

    def __getitem__(self, name: str) -> int:
        """Return a counter of HELP."""
        return self._counts[name]

    def count(self, name: str) -> None:
        """Increase a counter of HELP by one."""
        self._counts[name] += 1

    def count_call(self, verb: str, seconds: float, error: Exception | None) -> None:
        """Count a call of an environment."""
        self._calls[verb] += 1
        self._seconds[verb] += seconds
        if error is not None:
            self._errors[type(error).__name__] += 1

    def text(self, gauges: Mapping[str, float]) -> str:
        """Return all counters and these gauges in Prometheus' text format."""
        lines = []
        for name, value in gauges.items():
            lines += [f"# TYPE gem_{name} gauge", f"gem_{name} {value:g}"]
        for name, help_text in HELP.items():
            lines += [
                f"# HELP gem_{name} {help_text}",
                f"# TYPE gem_{name} counter",
                f"gem_{name} {self._counts[name]}",
            ]
        for name, label, counts in (
            ("calls_total", "verb", self._calls),
            ("call_seconds_total", "verb", self._seconds),
            ("call_errors_total", "type", self._errors),
        ):
            lines.append(f"# TYPE gem_{name} counter")
            lines += [f'gem_{name}{{{label}="{key}"}} {count:g}' for key, count in sorted(counts.items())]
        return "\n".join(lines) + "\n"
