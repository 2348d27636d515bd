"""A server with a state: each session has its own notes and counter."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from gem.tools.mcp_server import serve, server

MAX_SESSIONS, MAX_NOTES, MAX_NOTE = 10_000, 1_000, 10_000

app = server("notes", "Notes and a counter; every session begins with neither.")

from mcp.server.mcpserver import Context  # noqa: E402  (after server(), whose error names the extra)
from mcp.server.mcpserver.exceptions import ToolError  # noqa: E402


@dataclass
class _Book:
    notes: list[str] = field(default_factory=list)
    count: int = 0


_books: OrderedDict[str, _Book] = OrderedDict()


def _book(context: Context) -> _Book:
    """Return the state of the caller's session; over stdio there is only one, without an id."""
    headers = context.headers
    session = (headers or {}).get("mcp-session-id", "")
    if headers is not None and not session:  # else all such callers would share their notes
        raise ToolError("notes belong to a session; begin with the initialize handshake.")
    if session not in _books and len(_books) >= MAX_SESSIONS:
        _books.popitem(last=False)
    _books.setdefault(session, _Book())
    _books.move_to_end(session)
    return _books[session]


@app.tool()
async def write_note(text: str, context: Context) -> str:
    """Write a note at the end of the notes."""
    book = _book(context)
    if len(text) > MAX_NOTE or len(book.notes) >= MAX_NOTES:
        raise ToolError(f"accepted: {MAX_NOTES} notes of {MAX_NOTE} characters.")
    book.notes.append(text)
    return f"Note {len(book.notes)} is written."


@app.tool()
async def read_notes(context: Context) -> str:
    """Read all notes, one a line."""
    return "\n".join(_book(context).notes) or "There are no notes."


@app.tool()
async def count(context: Context) -> int:
    """Add one to the counter and tell its value."""
    book = _book(context)
    book.count += 1
    return book.count


if __name__ == "__main__":
    serve(app, sessions=True)
