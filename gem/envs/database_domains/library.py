"""A library: books, their copies, members and loans."""

from __future__ import annotations

from random import Random

from gem.envs.database_domains.domain import (
    TODAY,
    Domain,
    Operation,
    Question,
    Tables,
    day,
    literal,
    people,
    period,
)

GENRES = ("fantasy", "history", "poetry", "science", "travel")
FIRST = ("Silent", "Broken", "Golden", "Hidden", "Distant", "Burning")
SECOND = ("River", "Garden", "Letters", "Machine", "Harbour", "Winter")
STATES = ("new", "good", "worn")

SCHEMA = """
CREATE TABLE books (id INTEGER PRIMARY KEY, title TEXT NOT NULL, genre TEXT NOT NULL, year INTEGER NOT NULL);
CREATE TABLE copies (id INTEGER PRIMARY KEY, book_id INTEGER NOT NULL REFERENCES books(id),
  state TEXT NOT NULL);
CREATE TABLE members (id INTEGER PRIMARY KEY, name TEXT NOT NULL, fee_cents INTEGER NOT NULL);
CREATE TABLE loans (id INTEGER PRIMARY KEY, copy_id INTEGER NOT NULL REFERENCES copies(id),
  member_id INTEGER NOT NULL REFERENCES members(id), lent DATE NOT NULL, due DATE NOT NULL, returned DATE);
"""


def fill(rng: Random) -> Tables:
    """Return the rows of a library; a loan without a date of return is still out."""
    titles = [f"The {first} {second}" for first in FIRST for second in SECOND]
    books = [(i, t, rng.choice(GENRES), rng.randrange(1950, 2024)) for i, t in enumerate(titles, 1)]
    copies = [(i, (i - 1) % len(books) + 1, rng.choice(STATES)) for i in range(1, 81)]
    members = [(i, name, 50 * rng.randrange(0, 20)) for i, name in enumerate(people(rng, 30), 1)]
    out = rng.sample(range(1, 81), 25)
    loans: list[tuple[int, int, int, str, str, str | None]] = []
    for i in range(1, 96):
        lent = day(rng, "2024-01-01", "2025-04-30")
        returned = day(rng, lent, "2025-05-15")
        loans.append((i, rng.randrange(1, 81), rng.randrange(1, 31), lent, day(rng, lent), returned))
    for i, copy in enumerate(out, 96):
        lent = day(rng, "2025-05-20")
        loans.append((i, copy, rng.randrange(1, 31), lent, day(rng, lent, "2025-07-20"), None))
    return {"books": books, "copies": copies, "members": members, "loans": loans}


def overdue(rng: Random, tables: Tables) -> Question:
    """Ask for loans out beyond a day."""
    genre, until = rng.choice(GENRES), day(rng, "2025-06-15", "2025-07-20")
    return Question(
        f"Which loans of books of the genre {genre} are not returned and have a due date up to {until}, that "
        "day included? Give the member's name, the book's title and the due date.",
        "SELECT m.name, b.title, l.due FROM loans l JOIN members m ON m.id = l.member_id "
        "JOIN copies c ON c.id = l.copy_id JOIN books b ON b.id = c.book_id "
        f"WHERE l.returned IS NULL AND l.due <= '{until}' AND b.genre = {literal(genre)}",
    )


def never_lent(rng: Random, tables: Tables) -> Question:
    """Ask for books that nobody borrowed in a time."""
    first, last = period(rng, 120, 400)
    return Question(
        f"Which books have no copy that was lent from {first} to {last}, both days included? Give title and "
        "year of each.",
        "SELECT b.title, b.year FROM books b WHERE NOT EXISTS (SELECT 1 FROM copies c JOIN loans l "
        f"ON l.copy_id = c.id WHERE c.book_id = b.id AND l.lent BETWEEN '{first}' AND '{last}')",
    )


def genres(rng: Random, tables: Tables) -> Question:
    """Ask for loans by genre."""
    state, start = rng.choice(STATES), day(rng, "2024-01-15", "2025-02-28")
    return Question(
        f"For each genre with loans of copies in the state '{state}' that were lent on or after {start}, "
        "give the genre, the number of those loans, and how many different members made them. Order by "
        "genre, from A to Z.",
        "SELECT b.genre, COUNT(*), COUNT(DISTINCT l.member_id) FROM loans l JOIN copies c ON c.id = "
        f"l.copy_id JOIN books b ON b.id = c.book_id WHERE c.state = {literal(state)} "
        f"AND l.lent >= '{start}' GROUP BY b.genre ORDER BY b.genre",
        ordered=True,
    )


def readers(rng: Random, tables: Tables) -> Question:
    """Ask for the members who borrowed most."""
    count, (first, last) = rng.choice((3, 4, 5)), period(rng, 200, 500)
    return Question(
        f"Which {count} members have the most loans lent from {first} to {last}, both days included, "
        "returned or not? Give name and number of loans, most loans first; of members with as many, the one "
        "with the lower id comes first.",
        "SELECT m.name, COUNT(*) AS number FROM members m JOIN loans l ON l.member_id = m.id "
        f"WHERE l.lent BETWEEN '{first}' AND '{last}' GROUP BY m.id, m.name "
        f"ORDER BY number DESC, m.id LIMIT {count}",
        ordered=True,
    )


def take_back(rng: Random, tables: Tables) -> Operation:
    """Take a copy back, worn."""
    loan = rng.choice([row for row in tables["loans"] if row[5] is None])
    fine = 50 * rng.randrange(1, 8)
    return Operation(
        f"Loan {loan[0]} is returned on {TODAY}. Enter that date, set the state of its copy to 'worn', and "
        f"add {fine} to the fee_cents of its member.",
        f"UPDATE loans SET returned = '{TODAY}' WHERE id = {loan[0]}; "
        f"UPDATE copies SET state = 'worn' WHERE id = {loan[1]}; "
        f"UPDATE members SET fee_cents = fee_cents + {fine} WHERE id = {loan[2]};",
    )


def remove(rng: Random, tables: Tables) -> Operation:
    """Remove a copy with all that depends on it."""
    copy = rng.choice(tables["loans"])[1]
    return Operation(
        f"Copy {copy} is lost. Delete it, and all loans of it.",
        f"DELETE FROM loans WHERE copy_id = {copy}; DELETE FROM copies WHERE id = {copy};",
    )


def remind(rng: Random, tables: Tables) -> Operation:
    """Charge who is late."""
    fine = 10 * rng.randrange(5, 50)
    return Operation(
        f"Add {fine} to the fee_cents of every member who has at least one loan that is not returned and was "
        f"due before {TODAY}: once for each member, however many such loans there are.",
        f"UPDATE members SET fee_cents = fee_cents + {fine} WHERE id IN "
        f"(SELECT member_id FROM loans WHERE returned IS NULL AND due < '{TODAY}');",
    )


LIBRARY = Domain(
    "Library",
    "a library",
    SCHEMA,
    fill,
    (overdue, never_lent, genres, readers),
    (take_back, remove, remind),
)
