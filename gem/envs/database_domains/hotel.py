"""Hotels: their rooms, guests and reservations."""

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

CITIES = ("Athens", "Bruges", "Cairo", "Dakar", "Hanoi")
HOUSES = ("Anchor", "Bell", "Crown", "Dolphin", "Eagle", "Fox")
KINDS = ("double", "single", "suite")

SCHEMA = """
CREATE TABLE hotels (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL, stars INTEGER NOT NULL);
CREATE TABLE rooms (id INTEGER PRIMARY KEY, hotel_id INTEGER NOT NULL REFERENCES hotels(id),
  kind TEXT NOT NULL, price INTEGER NOT NULL);
CREATE TABLE guests (id INTEGER PRIMARY KEY, name TEXT NOT NULL, points INTEGER NOT NULL);
CREATE TABLE stays (id INTEGER PRIMARY KEY, room_id INTEGER NOT NULL REFERENCES rooms(id),
  guest_id INTEGER NOT NULL REFERENCES guests(id), arrives DATE NOT NULL, nights INTEGER NOT NULL);
"""


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


def income(rng: Random, tables: Tables) -> Question:
    """Ask for what hotels of a city earned."""
    city, (first, last) = rng.choice(CITIES), period(rng, 200, 450, last="2025-12-01")
    return Question(
        f"For each hotel in {city} with stays that arrive from {first} to {last}, both days included, give "
        "its name and its income from those stays (price of the room times nights). Highest income first; "
        "of equals the lower hotel id comes first.",
        "SELECT h.name, SUM(r.price * s.nights) AS income FROM hotels h JOIN rooms r ON r.hotel_id = h.id "
        f"JOIN stays s ON s.room_id = r.id WHERE h.city = {literal(city)} "
        f"AND s.arrives BETWEEN '{first}' AND '{last}' GROUP BY h.id, h.name ORDER BY income DESC, h.id",
        ordered=True,
    )


def empty(rng: Random, tables: Tables) -> Question:
    """Ask for rooms without a stay."""
    kind, start = rng.choice(KINDS), day(rng, "2024-10-01", "2025-09-30")
    return Question(
        f"Which rooms of the kind {kind} have no stay that arrives on or after {start}? Give the room id, "
        "the hotel's name and the price.",
        "SELECT r.id, h.name, r.price FROM rooms r JOIN hotels h ON h.id = r.hotel_id "
        f"WHERE r.kind = {literal(kind)} AND NOT EXISTS "
        f"(SELECT 1 FROM stays s WHERE s.room_id = r.id AND s.arrives >= '{start}')",
    )


def loyal(rng: Random, tables: Tables) -> Question:
    """Ask for guests of several cities."""
    count, start = rng.choice((2, 3)), day(rng, "2024-01-15", "2025-01-31")
    return Question(
        f"Which guests have stays in hotels of at least {count} different cities that arrive on or after "
        f"{start}? Give name, number of different cities and nights in all, both over these stays.",
        "SELECT g.name, COUNT(DISTINCT h.city), SUM(s.nights) FROM guests g JOIN stays s ON "
        "s.guest_id = g.id JOIN rooms r ON r.id = s.room_id JOIN hotels h ON h.id = r.hotel_id "
        f"WHERE s.arrives >= '{start}' GROUP BY g.id, g.name HAVING COUNT(DISTINCT h.city) >= {count}",
    )


def dear(rng: Random, tables: Tables) -> Question:
    """Ask for rooms above the mean of their kind."""
    stars, more = rng.choice((3, 4)), rng.randrange(10, 121)
    return Question(
        f"Which rooms in hotels with at least {stars} stars cost more than {more} above the average price of "
        "all rooms of their kind (in all hotels, whatever their stars)? Give room id, kind and price.",
        "WITH mean AS (SELECT kind, AVG(price) AS middle FROM rooms GROUP BY kind) "
        "SELECT r.id, r.kind, r.price FROM rooms r JOIN mean m ON m.kind = r.kind "
        f"JOIN hotels h ON h.id = r.hotel_id WHERE h.stars >= {stars} AND r.price > m.middle + {more}",
    )


def reserve(rng: Random, tables: Tables) -> Operation:
    """Enter a stay."""
    room, guest = rng.choice(tables["rooms"])[0], rng.choice(tables["guests"])
    number, nights = len(tables["stays"]) + 1, rng.randrange(2, 8)
    arrives = day(rng, "2026-01-01", "2026-12-01")
    return Operation(
        f"Enter stay {number}: {guest[1]} in room {room}, arriving on {arrives}, for {nights} nights; "
        "and add 10 "
        "points to the guest for each night.",
        f"INSERT INTO stays VALUES ({number}, {room}, {guest[0]}, '{arrives}', {nights}); "
        f"UPDATE guests SET points = points + {10 * nights} WHERE id = {guest[0]};",
    )


def close(rng: Random, tables: Tables) -> Operation:
    """Close a hotel and make up for the stays to come."""
    hotel, points = rng.choice(tables["rooms"])[1], 10 * rng.randrange(5, 40)
    return Operation(
        f"The hotel with id {hotel} closes: add {points} points to every guest with a stay there that "
        f"arrives after {TODAY} (once, however many), then delete the hotel, its rooms and all stays in "
        "them.",
        f"UPDATE guests SET points = points + {points} WHERE id IN (SELECT s.guest_id FROM stays s "
        f"JOIN rooms r ON r.id = s.room_id WHERE r.hotel_id = {hotel} AND s.arrives > '{TODAY}'); "
        f"DELETE FROM stays WHERE room_id IN (SELECT id FROM rooms WHERE hotel_id = {hotel}); "
        f"DELETE FROM rooms WHERE hotel_id = {hotel}; DELETE FROM hotels WHERE id = {hotel};",
    )


def reprice(rng: Random, tables: Tables) -> Operation:
    """Change prices by stars."""
    city, more, less = rng.choice(CITIES), rng.randrange(10, 50), rng.randrange(3, 20)
    return Operation(
        f"In {city}, raise the price of every room in a hotel with 4 or 5 stars by {more}, and reduce "
        "the price "
        f"of every other room there by {less}.",
        f"UPDATE rooms SET price = price + {more} WHERE hotel_id IN "
        f"(SELECT id FROM hotels WHERE city = {literal(city)} AND stars >= 4); "
        f"UPDATE rooms SET price = price - {less} WHERE hotel_id IN "
        f"(SELECT id FROM hotels WHERE city = {literal(city)} AND stars < 4);",
    )


HOTEL = Domain(
    "Hotel",
    "a group of hotels",
    SCHEMA,
    fill,
    (income, empty, loyal, dear),
    (reserve, close, reprice),
)
