"""A server for times: now, in other time zones, differences, and the calendar.

An unknown time zone stands for this machine's, as with upstream's server of this name.
"""

from __future__ import annotations

import calendar
import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from gem.tools.mcp_server import serve, server

app = server("time", "The time and the calendar.")

DEFAULT_FORMAT = "YYYY-MM-DD HH:mm:ss"

_MOMENT = {
    "YYYY": "%Y", "YY": "%y", "MMMM": "%B", "MMM": "%b", "MM": "%m", "M": "%-m", "DDDD": "%j", "DD": "%d",
    "D": "%-d", "dddd": "%A", "ddd": "%a", "HH": "%H", "H": "%-H", "hh": "%I", "h": "%-I", "mm": "%M",
    "m": "%-M", "ss": "%S", "s": "%-S", "A": "%p", "ZZ": "%z", "Z": "%z",
}  # fmt: skip
_DAY = 86_400
_UNITS = (
    *(("years", 360 * _DAY), ("months", 30 * _DAY), ("days", _DAY)),
    *(("hours", 3600), ("minutes", 60), ("seconds", 1)),
)
"""Units of `relative_time`, the longest first, in seconds; a month is 30 days, a year 12 of these."""
_TOKEN = re.compile(r"\[[^\]]*\]|" + "|".join(sorted(_MOMENT, key=len, reverse=True)) + "|%")


def _moment_to_strftime(form: str) -> str:
    """Translate a format of moment.js, such as ``YYYY-MM-DD``, to one of strftime."""

    def one(match: re.Match[str]) -> str:
        token = match[0]
        if token.startswith("["):  # moment.js's quotation marks
            return token[1:-1].replace("%", "%%")
        return _MOMENT.get(token, "%%")

    return _TOKEN.sub(one, form)


def _parse_dt(text: str, timezone: str | None = None) -> datetime:
    """Return the moment of `text`, as ``YYYY-MM-DD HH:mm:ss``, other ISO 8601, or seconds since 1970.

    Where it names no time zone it is in `timezone`, or in this machine's.

    Raises:
        ValueError: when it cannot be read.
    """
    text = text.strip()
    if re.fullmatch(r"-?\d{9,11}(\.\d+)?", text):
        return datetime.fromtimestamp(float(text), UTC)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text!r:.60} is no moment; accepted: ISO 8601, as 2025-03-01T12:30:00.") from error
    return moment if moment.tzinfo else _in_zone(moment, timezone)


def _in_zone(moment: datetime, timezone: str | None) -> datetime:
    zone = _zone(timezone)
    return moment.astimezone() if zone is None else moment.replace(tzinfo=zone)


def _parse_date(text: str) -> datetime:
    """Return the midnight at which a day begins on this machine, from a day or a moment in ISO 8601.

    Raises:
        ValueError: when it cannot be read.
    """
    return _parse_dt(text).replace(hour=0, minute=0, second=0, microsecond=0)


def _zone(name: str | None) -> ZoneInfo | None:
    """Return a time zone; None for this machine's, which an unknown name stands for too."""
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


@app.tool()
async def current_time(format: str = DEFAULT_FORMAT, timezone: str | None = None) -> str:
    """Tell the time now, in a format as YYYY-MM-DD HH:mm:ss and a time zone as Europe/Paris."""
    return datetime.now(UTC).astimezone(_zone(timezone)).strftime(_moment_to_strftime(format))


@app.tool()
async def convert_time(sourceTimezone: str, targetTimezone: str, time: str) -> str:
    """Tell what a time in one time zone is in another; the time is as 2025-03-01 12:30:00."""
    return _parse_dt(time, sourceTimezone).astimezone(_zone(targetTimezone)).isoformat()


@app.tool()
async def relative_time(time: str) -> str:
    """Tell how long ago a moment was, or how long until it comes, in whole units, rounded down."""
    seconds = (_parse_dt(time) - datetime.now(UTC)).total_seconds()
    unit, length = next(pair for pair in _UNITS if abs(seconds) >= pair[1] or pair[1] == 1)
    count = f"{int(abs(seconds) // length)} {unit}"
    return f"{count} ago" if seconds < 0 else f"in {count}"


@app.tool()
async def seconds_between(start: str, end: str) -> float:
    """Tell the seconds from one moment to another, both in ISO 8601."""
    return (_parse_dt(end) - _parse_dt(start)).total_seconds()


@app.tool()
async def get_timestamp(time: str | None = None) -> int:
    """Tell the milliseconds since 1970 of a moment in ISO 8601, or of now."""
    return round((_parse_dt(time) if time else datetime.now(UTC)).timestamp() * 1000)


@app.tool()
async def days_in_month(date: str | None = None) -> int:
    """Tell how many days the month of a day has, or this month."""
    day = _day(date)
    return calendar.monthrange(day.year, day.month)[1]


@app.tool()
async def get_week_year(date: str | None = None) -> str:
    """Tell the week of a day, or of today: as weeks from the first Monday of the year, and as ISO 8601's."""
    day = _day(date)
    return f"week: {int(day.strftime('%W'))}, isoWeek: {day.isocalendar().week}"


def _day(text: str | None) -> datetime:
    return _parse_date(text) if text else datetime.now().astimezone()


if __name__ == "__main__":
    serve(app, path="/time-mcp", port=8081)
