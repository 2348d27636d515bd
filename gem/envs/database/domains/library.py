"""A library: books, their copies, members and loans."""

from __future__ import annotations

from random import Random

from gem.envs.database.domains.domain import Tables, day, people, period
from gem.envs.kit.templates import Values

GENRES = ("fantasy", "history", "poetry", "science", "travel")
FIRST = ("Silent", "Broken", "Golden", "Hidden", "Distant", "Burning")
SECOND = ("River", "Garden", "Letters", "Machine", "Harbour", "Winter")
STATES = ("new", "good", "worn")


def fill(rng: Random) -> Tables:
    """Return the rows of a library; a loan without a return date is not returned yet."""
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


def overdue(rng: Random, tables: Tables) -> Values:
    """Ask for loans that are not returned and were due by a day."""
    return {"genre": rng.choice(GENRES), "until": day(rng, "2025-06-15", "2025-07-20")}


def never_lent(rng: Random, tables: Tables) -> Values:
    """Ask for books that nobody borrowed in a period."""
    return period(rng, 120, 400)


def genres(rng: Random, tables: Tables) -> Values:
    """Ask for loans by genre."""
    return {"state": rng.choice(STATES), "start": day(rng, "2024-01-15", "2025-02-28")}


def readers(rng: Random, tables: Tables) -> Values:
    """Ask for the members who borrowed most."""
    return {"count": rng.choice((3, 4, 5)), **period(rng, 200, 500)}


def take_back(rng: Random, tables: Tables) -> Values:
    """Record the return of a worn copy."""
    loan = rng.choice([row for row in tables["loans"] if row[5] is None])
    return {"loan": loan[0], "fine": 50 * rng.randrange(1, 8), "copy": loan[1], "member": loan[2]}


def remove(rng: Random, tables: Tables) -> Values:
    """Remove a copy with all that depends on it."""
    return {"copy": rng.choice(tables["loans"])[1]}


def remind(rng: Random, tables: Tables) -> Values:
    """Charge members with late loans."""
    return {"fine": 10 * rng.randrange(5, 50)}
