"""A server for times: now, in other time zones, differences, and the calendar."""

from __future__ import annotations

import calendar
import re
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from gem.tools.mcp_server import serve, server

app = server("time", "The time and the calendar.")

DEFAULT_FORMAT = "YYYY-MM-DD HH:mm:ss"

_MOMENT = {
    "YYYY": "%Y", "YY": "%y", "MMMM": "%B", "MMM": "%b", "MM": "%m", "M": "%-m", "DDDD": "%j", "DD": "%d",
    "D": "%-d", "dddd": "%A", "ddd": "%a", "HH": "%H", "H": "%-H", "hh": "%I", "h": "%-I", "mm": "%M",
    "m": "%-M", "ss": "%S", "s": "%-S", "A": "%p", "ZZ": "%z", "Z": "%z",
}  # fmt: skip
_UNITS = (("year", 31_536_000), ("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))
_TOKEN = re.compile(r"\[[^\]]*\]|" + "|".join(sorted(_MOMENT, key=len, reverse=True)) + "|%")


def _moment_to_strftime(form: str) -> str:
    """Translate a format of moment.js, such as ``YYYY-MM-DD``, to one of strftime."""

    def one(found: re.Match[str]) -> str:
        token = found[0]
        if token.startswith("["):  # moment.js's quotation marks
            return token[1:-1].replace("%", "%%")
        return _MOMENT.get(token, "%%")

    return _TOKEN.sub(one, form)


def _parse_dt(text: str, timezone: str = "UTC") -> datetime:
    """Return the moment of `text`, in ISO 8601 or as seconds since 1970; in `timezone` if it has none.

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
    return moment if moment.tzinfo else moment.replace(tzinfo=_zone(timezone))


def _parse_date(text: str) -> date:
    """Return the day of `text`, a day or a moment in ISO 8601.

    Raises:
        ValueError: when it cannot be read.
    """
    return _parse_dt(text).date()


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{name!r:.60} is no time zone; accepted: IANA names, as Europe/Paris.") from error


@app.tool()
async def current_time(format: str = DEFAULT_FORMAT, timezone: str = "UTC") -> str:
    """Tell the time now, in a format as YYYY-MM-DD HH:mm:ss and a time zone as Europe/Paris."""
    return datetime.now(_zone(timezone)).strftime(_moment_to_strftime(format))


@app.tool()
async def convert_time(time: str, source_timezone: str, target_timezone: str) -> str:
    """Tell what a time in one time zone is in another; the time is in ISO 8601."""
    return _parse_dt(time, source_timezone).astimezone(_zone(target_timezone)).isoformat()


@app.tool()
async def relative_time(time: str) -> str:
    """Tell how long ago a moment in ISO 8601 was, or how long until it comes."""
    seconds = round((_parse_dt(time) - datetime.now(UTC)).total_seconds())
    unit, length = next(pair for pair in _UNITS if abs(seconds) >= pair[1] or pair[1] == 1)
    count = abs(seconds) // length
    said = f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{said} ago" if seconds < 0 else f"in {said}"


@app.tool()
async def seconds_between(start: str, end: str) -> float:
    """Tell the seconds from one moment to another, both in ISO 8601."""
    return (_parse_dt(end) - _parse_dt(start)).total_seconds()


@app.tool()
async def get_timestamp(time: str = "") -> int:
    """Tell the milliseconds since 1970 of a moment in ISO 8601, or of now."""
    return round((_parse_dt(time) if time else datetime.now(UTC)).timestamp() * 1000)


@app.tool()
async def days_in_month(date: str) -> int:
    """Tell how many days the month of a day has."""
    day = _parse_date(date)
    return calendar.monthrange(day.year, day.month)[1]


@app.tool()
async def get_week_year(date: str) -> str:
    """Tell the ISO week of a day, as 2025-W09."""
    year, week, _ = _parse_date(date).isocalendar()
    return f"{year}-W{week:02d}"


if __name__ == "__main__":
    serve(app)
