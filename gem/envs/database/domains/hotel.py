"""Hotels: their rooms, guests and reservations."""

from __future__ import annotations

from random import Random

from gem.envs.database.domains.domain import Tables, day, people, period
from gem.envs.kit.templates import Values

CITIES = ("Athens", "Bruges", "Cairo", "Dakar", "Hanoi")
HOUSES = ("Anchor", "Bell", "Crown", "Dolphin", "Eagle", "Fox")
KINDS = ("double", "single", "suite")


def fill(rng: Random) -> Tables:
    """Return the rows of hotels."""
    hotels = [
        (i, f"{house} {city}", city, rng.randrange(2, 6))
        for i, (house, city) in enumerate([(house, city) for city in CITIES for house in HOUSES], 1)
    ]
    rooms = [(i, rng.randrange(1, 31), rng.choice(KINDS), 10 * rng.randrange(5, 40)) for i in range(1, 81)]
    guests = [(i, name, 10 * rng.randrange(0, 90)) for i, name in enumerate(people(rng, 40), 1)]
    stays = [
        (
            i,
            rng.randrange(1, 81),
            rng.randrange(1, 41),
            day(rng, "2024-01-01", "2025-12-01"),
            rng.randrange(1, 9),
        )
        for i in range(1, 141)
    ]
    return {"hotels": hotels, "rooms": rooms, "guests": guests, "stays": stays}


def income(rng: Random, tables: Tables) -> Values:
    """Ask for the income of a city's hotels."""
    return {"city": rng.choice(CITIES), **period(rng, 200, 450, last="2025-12-01")}


def empty(rng: Random, tables: Tables) -> Values:
    """Ask for rooms without a stay."""
    return {"kind": rng.choice(KINDS), "start": day(rng, "2024-10-01", "2025-09-30")}


def loyal(rng: Random, tables: Tables) -> Values:
    """Ask for guests who stayed in several cities."""
    return {"count": rng.choice((2, 3)), "start": day(rng, "2024-01-15", "2025-01-31")}


def dear(rng: Random, tables: Tables) -> Values:
    """Ask for rooms priced above the mean of their kind."""
    return {"stars": rng.choice((3, 4)), "more": rng.randrange(10, 121)}


def reserve(rng: Random, tables: Tables) -> Values:
    """Add a stay."""
    room, guest = rng.choice(tables["rooms"])[0], rng.choice(tables["guests"])
    nights = rng.randrange(2, 8)
    return {
        "number": len(tables["stays"]) + 1,
        "name": guest[1],
        "room": room,
        "arrives": day(rng, "2026-01-01", "2026-12-01"),
        "nights": nights,
        "guest": guest[0],
        "points": 10 * nights,
    }


def close(rng: Random, tables: Tables) -> Values:
    """Close a hotel and compensate its future stays."""
    return {"hotel": rng.choice(tables["rooms"])[1], "points": 10 * rng.randrange(5, 40)}


def reprice(rng: Random, tables: Tables) -> Values:
    """Change prices by stars."""
    return {"city": rng.choice(CITIES), "more": rng.randrange(10, 50), "less": rng.randrange(3, 20)}
