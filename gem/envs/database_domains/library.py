"""A library: books, their copies, members and loans."""

from __future__ import annotations

from random import Random

from gem.envs.database_domains.domain import TODAY, Domain, Operation, Question, Tables, day, literal, people

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
    """Ask for loans out beyond their day."""
    genre = rng.choice(GENRES)
    return Question(
        f"Which loans of books of the genre {genre} are not returned and were due before {TODAY}? Give the "
        "member's name, the book's title and the due date.",
        "SELECT m.name, b.title, l.due FROM loans l JOIN members m ON m.id = l.member_id "
        "JOIN copies c ON c.id = l.copy_id JOIN books b ON b.id = c.book_id "
        f"WHERE l.returned IS NULL AND l.due < '{TODAY}' AND b.genre = {literal(genre)}",
    )


def never_lent(rng: Random, tables: Tables) -> Question:
    """Ask for books that nobody borrowed in a year."""
    year = rng.choice((2024, 2025))
    return Question(
        f"Which books have no copy that was lent in {year}? Give title and year of each.",
        "SELECT b.title, b.year FROM books b WHERE NOT EXISTS (SELECT 1 FROM copies c JOIN loans l "
        f"ON l.copy_id = c.id WHERE c.book_id = b.id AND l.lent >= '{year}-01-01' "
        f"AND l.lent < '{year + 1}-01-01')",
    )


def genres(rng: Random, tables: Tables) -> Question:
    """Ask for loans by genre."""
    state = rng.choice(STATES)
    return Question(
        f"For each genre with loans of copies in the state '{state}', give the genre, the number of those "
        "loans, and how many different members made them. Order by genre, from A to Z.",
        "SELECT b.genre, COUNT(*), COUNT(DISTINCT l.member_id) FROM loans l JOIN copies c ON c.id = "
        "l.copy_id "
        f"JOIN books b ON b.id = c.book_id WHERE c.state = {literal(state)} GROUP BY b.genre ORDER BY "
        "b.genre",
        ordered=True,
    )


def readers(rng: Random, tables: Tables) -> Question:
    """Ask for the members who borrowed most."""
    count = rng.choice((3, 4, 5))
    return Question(
        f"Which {count} members have the most loans, returned or not? Give name and number of loans, most "
        "loans first; of members with as many, the one with the lower id comes first.",
        "SELECT m.name, COUNT(*) AS number FROM members m JOIN loans l ON l.member_id = m.id "
        f"GROUP BY m.id, m.name ORDER BY number DESC, m.id LIMIT {count}",
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
    fine = rng.choice((100, 150, 200))
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
