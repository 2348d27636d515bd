"""What ``gem-gym sandbox`` says: which rung this machine gives, and what its self-test found."""

from __future__ import annotations

from gem.errors import BadArgument, did_you_mean
from gem.sandbox.bwrap import HOW_TO_INSTALL
from gem.sandbox.ladder import ORDER, PROPERTIES, RUNGS, configured, self_test

_WORDS = {True: "yes", False: "NO", None: "could not be tried"}


def describe(rung: str | None = None) -> tuple[list[str], bool]:
    """Return lines about a rung, or about the first that passes and why others do not; and whether it does.

    Raises:
        BadArgument: for a name that is no rung.
    """
    rung = rung or configured()
    if rung is not None and rung not in RUNGS:
        raise BadArgument(f"no rung {rung!r}.{did_you_mean(rung, RUNGS)} There are: {', '.join(RUNGS)}.")
    lines: list[str] = []
    for name in ORDER if rung is None else (rung,):
        report = self_test(name)
        if report.passed:
            width = max(map(len, PROPERTIES.values()))
            held = [
                f"  {meaning:<{width}}  {_WORDS[report.properties.get(key)]}"
                for key, meaning in PROPERTIES.items()
            ]
            return [f"{name}: {RUNGS[name].summary} ({RUNGS[name].label})", *held, *lines], name != "none"
        lines.append(f"not {name}: {report.why_not}")
    lines.append(
        f"Programs are not run without a sandbox: install bubblewrap ({HOW_TO_INSTALL}), name a "
        "container engine or a service (GEM_SANDBOX=container or remote), or say allow_unsafe=True."
    )
    return lines, False
