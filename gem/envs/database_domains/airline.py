"""An airline: airports, flights, passengers and bookings."""

from __future__ import annotations

from random import Random

from gem.envs.database_domains.domain import Domain, Operation, Question, Tables, day, literal, people

AIRPORTS = (
    *(("LIS", "Lisbon", "Portugal"), ("OPO", "Porto", "Portugal"), ("OSL", "Oslo", "Norway")),
    *(("BGO", "Bergen", "Norway"), ("VIE", "Vienna", "Austria"), ("GRZ", "Graz", "Austria")),
    *(("NBO", "Nairobi", "Kenya"), ("MBA", "Mombasa", "Kenya"), ("KIX", "Osaka", "Japan")),
)
COUNTRIES = ("Portugal", "Norway", "Austria", "Kenya", "Japan")
CLASSES = ("economy", "business")

SCHEMA = """
CREATE TABLE airports (code TEXT PRIMARY KEY, city TEXT NOT NULL, country TEXT NOT NULL);
CREATE TABLE flights (id INTEGER PRIMARY KEY, origin TEXT NOT NULL REFERENCES airports(code),
  destination TEXT NOT NULL REFERENCES airports(code), departs DATE NOT NULL, seats INTEGER NOT NULL,
  cancelled INTEGER NOT NULL);
CREATE TABLE passengers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, miles INTEGER NOT NULL);
CREATE TABLE bookings (id INTEGER PRIMARY KEY, flight_id INTEGER NOT NULL REFERENCES flights(id),
  passenger_id INTEGER NOT NULL REFERENCES passengers(id), class TEXT NOT NULL, fare INTEGER NOT NULL);
"""


def fill(rng: Random) -> Tables:
    """Return the rows of an airline; cancelled is 1 or 0."""
    codes = [row[0] for row in AIRPORTS]
    flights = []
    for i in range(1, 61):
        origin, destination = rng.sample(codes, 2)
        departs = day(rng, "2025-01-01", "2025-12-31")
        flights.append((i, origin, destination, departs, rng.randrange(60, 200), int(rng.random() < 0.15)))
    passengers = [(i, name, rng.randrange(0, 90_000)) for i, name in enumerate(people(rng, 40), 1)]
    bookings = [
        (i, rng.randrange(1, 61), rng.randrange(1, 41), rng.choice(CLASSES), rng.randrange(60, 900))
        for i in range(1, 141)
    ]
    return {"airports": AIRPORTS, "flights": flights, "passengers": passengers, "bookings": bookings}


def routes(rng: Random, tables: Tables) -> Question:
    """Ask for flights into a country."""
    country, start = rng.choice(COUNTRIES), day(rng, "2025-01-15", "2025-09-30")
    return Question(
        f"Which flights that are not cancelled land in {country} and depart after {start}? Give id, city of "
        "origin, city of destination and date of departure; earliest departure first, on one date the lower "
        "id first.",
        "SELECT f.id, o.city, d.city, f.departs FROM flights f JOIN airports o ON o.code = f.origin "
        f"JOIN airports d ON d.code = f.destination WHERE f.cancelled = 0 AND d.country = {literal(country)} "
        f"AND f.departs > '{start}' ORDER BY f.departs, f.id",
        ordered=True,
    )


def never_to(rng: Random, tables: Tables) -> Question:
    """Ask for passengers who have no booking to a country."""
    country, miles = rng.choice(COUNTRIES), 1000 * rng.randrange(5, 41)
    return Question(
        f"Which passengers with more than {miles} miles have no booking on a flight with origin or "
        f"destination in {country}, cancelled flights counting like the others? Give their names.",
        f"SELECT p.name FROM passengers p WHERE p.miles > {miles} AND NOT EXISTS (SELECT 1 FROM bookings b "
        "JOIN flights f ON f.id = b.flight_id JOIN airports a ON a.code = f.origin OR a.code = f.destination "
        f"WHERE b.passenger_id = p.id AND a.country = {literal(country)})",
    )


def income(rng: Random, tables: Tables) -> Question:
    """Ask for income by country of origin."""
    cabin, fare, least = rng.choice(CLASSES), 10 * rng.randrange(6, 41), rng.choice((5, 6, 7, 8))
    return Question(
        f"Consider the bookings in the class {cabin} with a fare of more than {fare}, on flights that are "
        "not cancelled. For each country of origin, give the country, the number of such bookings on flights "
        f"from there, and their average fare. Leave out countries with fewer than {least} such bookings.",
        "SELECT a.country, COUNT(*), AVG(b.fare) FROM bookings b JOIN flights f ON f.id = b.flight_id "
        f"JOIN airports a ON a.code = f.origin WHERE f.cancelled = 0 AND b.class = {literal(cabin)} "
        f"AND b.fare > {fare} GROUP BY a.country HAVING COUNT(*) >= {least}",
    )


def dearest(rng: Random, tables: Tables) -> Question:
    """Ask for the dearest booking of each passenger."""
    cabin, miles = rng.choice(CLASSES), 1000 * rng.randrange(5, 76)
    return Question(
        f"For every passenger with more than {miles} miles who has a booking in the class {cabin}, give the "
        "name, and flight_id and fare of the dearest booking in that class (of equal fares the lowest "
        "booking id).",
        "SELECT name, flight_id, fare FROM (SELECT p.name, b.flight_id, b.fare, ROW_NUMBER() OVER "
        "(PARTITION BY p.id ORDER BY b.fare DESC, b.id) AS place FROM passengers p JOIN bookings b "
        f"ON b.passenger_id = p.id WHERE p.miles > {miles} AND b.class = {literal(cabin)}) AS ranked "
        "WHERE place = 1",
    )


def cancel(rng: Random, tables: Tables) -> Operation:
    """Cancel a flight and drop its bookings."""
    booked = {row[1] for row in tables["bookings"]}
    flight = rng.choice([row for row in tables["flights"] if not row[5] and row[0] in booked])[0]
    miles = 100 * rng.randrange(5, 30)
    return Operation(
        f"Flight {flight} is cancelled: set cancelled to 1, give every passenger booked on it {miles} "
        "miles more "
        "(once, however many bookings), and delete its bookings.",
        f"UPDATE flights SET cancelled = 1 WHERE id = {flight}; UPDATE passengers SET miles = miles + "
        f"{miles} "
        f"WHERE id IN (SELECT passenger_id FROM bookings WHERE flight_id = {flight}); "
        f"DELETE FROM bookings WHERE flight_id = {flight};",
    )


def upgrade(rng: Random, tables: Tables) -> Operation:
    """Upgrade those who fly much."""
    miles, start = 1000 * rng.randrange(40, 76), day(rng, "2025-02-01", "2025-09-30")
    return Operation(
        f"Set the class of every economy booking on a flight that departs after {start} to 'business' if its "
        f"passenger has more than {miles} miles; the fares stay.",
        f"UPDATE bookings SET class = 'business' WHERE class = 'economy' "
        f"AND passenger_id IN (SELECT id FROM passengers WHERE miles > {miles}) "
        f"AND flight_id IN (SELECT id FROM flights WHERE departs > '{start}');",
    )


def book(rng: Random, tables: Tables) -> Operation:
    """Book a flight."""
    flight = rng.choice([row for row in tables["flights"] if not row[5]])
    passenger, fare = rng.choice(tables["passengers"]), rng.randrange(100, 700)
    number = len(tables["bookings"]) + 1
    return Operation(
        f"Enter booking {number}: passenger {passenger[1]} on flight {flight[0]} in the class economy "
        "for a fare of "
        f"{fare}. Take one away from the flight's seats and add {fare} to the passenger's miles.",
        f"INSERT INTO bookings VALUES ({number}, {flight[0]}, {passenger[0]}, 'economy', {fare}); "
        f"UPDATE flights SET seats = seats - 1 WHERE id = {flight[0]}; "
        f"UPDATE passengers SET miles = miles + {fare} WHERE id = {passenger[0]};",
    )


AIRLINE = Domain(
    "Airline",
    "an airline",
    SCHEMA,
    fill,
    (routes, never_to, income, dearest),
    (cancel, upgrade, book),
)
