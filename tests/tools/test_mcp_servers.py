"""What gem's own MCP servers answer, without a client."""

import asyncio
import socket
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("mcp", reason="the mcp package is not installed")

from gem.tools.mcp_server import serve, time_mcp


def test_formats_of_moment_js_are_read():
    moment = datetime(2025, 3, 1, 15, 4, 5, tzinfo=UTC)
    form = time_mcp._moment_to_strftime("dddd D[D], DD.MM.YY hh:mm:ss A 100% [at] HH MMM MMMM")
    assert moment.strftime(form) == "Saturday 1D, 01.03.25 03:04:05 PM 100% at 15 Mar March"


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("2025-03-01T12:30:00", "2025-03-01T12:30:00+01:00"),
        ("2025-03-01 12:30+05:30", "2025-03-01T12:30:00+05:30"),
        ("2025-03-01T12:30:00Z", "2025-03-01T12:30:00+00:00"),
        ("1740832200", "2025-03-01T12:30:00+00:00"),
        (" 2025-07-01 ", "2025-07-01T00:00:00+02:00"),
    ],
)
def test_moments_are_read(text, iso):
    assert time_mcp._parse_dt(text, "Europe/Paris").isoformat() == iso


def test_days_are_read():
    day = time_mcp._parse_date("2024-02-29 13:14:15.016")
    assert day.tzinfo is not None
    assert day.replace(tzinfo=None) == datetime(2024, 2, 29)


@pytest.mark.parametrize("text", ["", "soon", "2025-02-30", "x" * 10_000])
def test_what_is_no_moment_is_refused(text):
    with pytest.raises(ValueError, match="accepted"):
        time_mcp._parse_dt(text)


@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        (
            "convert_time",
            {
                "time": "2025-03-01T12:00",
                "sourceTimezone": "Asia/Tokyo",
                "targetTimezone": "Asia/Kolkata",
            },
            "2025-03-01T08:30:00+05:30",
        ),
        ("seconds_between", {"start": "2025-01-01", "end": "2025-01-02T00:00:01"}, "86401.0"),
        ("get_timestamp", {"time": "2025-03-01T12:30:00Z"}, "1740832200000"),
        ("days_in_month", {"date": "2024-02-10"}, "29"),
        ("get_week_year", {"date": "2024-12-30"}, "week: 53, isoWeek: 1"),
        ("get_week_year", {"date": "2025-01-01"}, "week: 0, isoWeek: 1"),
    ],
)
def test_what_the_time_server_answers(name, arguments, answer):
    result = asyncio.run(time_mcp.app.call_tool(name, arguments))
    content = result[0] if isinstance(result, tuple) else getattr(result, "content", result)
    assert content[0].text == answer


@pytest.mark.parametrize(
    ("away", "words"),
    [
        (timedelta(minutes=90, seconds=5), "in 1 hours"),
        (timedelta(hours=-2, seconds=-5), "2 hours ago"),
        (timedelta(seconds=-1.5), "1 seconds ago"),
        (timedelta(days=29, hours=1), "in 29 days"),
        (timedelta(days=-59, hours=-1), "1 months ago"),
        (timedelta(days=359, hours=1), "in 11 months"),
        (timedelta(days=-800), "2 years ago"),
    ],
)
def test_differences_are_told_in_whole_units_rounded_down(away, words):
    moment = (datetime.now(UTC) + away).isoformat()
    assert asyncio.run(time_mcp.relative_time(moment)) == words


def test_an_unknown_time_zone_is_this_machines():
    here = datetime.now(UTC).astimezone().utcoffset()
    assert time_mcp._parse_dt("2025-03-01 12:30:00", "Nowhere/Else").utcoffset() is not None
    assert asyncio.run(time_mcp.current_time("ZZ", "../etc")) == asyncio.run(time_mcp.current_time("ZZ"))
    assert time_mcp._parse_dt(datetime.now().isoformat()).utcoffset() == here


def test_a_port_that_is_taken_or_none_is_said_in_a_line(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for port in (taken.getsockname()[1], 99999):
            with pytest.raises(SystemExit):
                serve(time_mcp.app, ["--http", str(port)])
            assert f"cannot listen on port {port}" in capsys.readouterr().err
