"""A clinic: doctors, patients, appointments and prescriptions."""

from __future__ import annotations

from random import Random

from gem.envs.database.domains.domain import Tables, day, people, period
from gem.envs.kit.templates import Values

FIELDS = ("cardiology", "dermatology", "neurology", "paediatrics")
DRUGS = ("amoxicillin", "ibuprofen", "insulin", "metformin", "salbutamol")
STATES = ("booked", "kept", "missed")


def fill(rng: Random) -> Tables:
    """Return the rows of a clinic."""
    names = people(rng, 70)
    doctors = [(i, names[i - 1], FIELDS[i % len(FIELDS)]) for i in range(1, 31)]
    patients = [(i, names[i + 29], day(rng, "1935-01-01", "2020-12-31")) for i in range(1, 41)]
    appointments = []
    for i in range(1, 131):
        date = day(rng, "2024-01-01", "2025-08-31")
        state = rng.choice(("kept", "kept", "missed")) if date < "2025-06-30" else "booked"
        minutes = 5 * rng.randrange(2, 13)
        appointments.append((i, rng.randrange(1, 31), rng.randrange(1, 41), date, minutes, state))
    kept = [row[0] for row in appointments if row[5] == "kept"]
    prescriptions = [
        (i, rng.choice(kept), rng.choice(DRUGS), rng.choice((5, 7, 10, 14, 30))) for i in range(1, 81)
    ]
    return {
        "doctors": doctors,
        "patients": patients,
        "appointments": appointments,
        "prescriptions": prescriptions,
    }


def never_seen(rng: Random, tables: Tables) -> Values:
    """Ask for patients who never kept an appointment in a field."""
    return {"field": rng.choice(FIELDS), "born": day(rng, "1950-01-01", "2005-12-31")}


def busiest(rng: Random, tables: Tables) -> Values:
    """Ask for the doctors with the most minutes."""
    return {"field": rng.choice(FIELDS), "count": rng.choice((2, 3)), **period(rng, 200, 450)}


def missed(rng: Random, tables: Tables) -> Values:
    """Ask for the share of missed appointments."""
    return period(rng, 120, 400)


def last_drug(rng: Random, tables: Tables) -> Values:
    """Ask for the last prescription of a drug to each patient."""
    return {"drug": rng.choice(DRUGS), "until": day(rng, "2024-08-01", "2025-06-15")}


def hand_over(rng: Random, tables: Tables) -> Values:
    """Give a doctor's booked appointments to another doctor."""
    old = rng.choice([row for row in tables["appointments"] if row[5] == "booked"])[1]
    new = rng.choice([row[0] for row in tables["doctors"] if row[0] != old])
    return {"old": old, "new": new}


def forget(rng: Random, tables: Tables) -> Values:
    """Delete a patient and all rows about the patient."""
    return {"patient": rng.choice(tables["appointments"])[2]}


def keep(rng: Random, tables: Tables) -> Values:
    """Record the result of an appointment."""
    visit = rng.choice([row for row in tables["appointments"] if row[5] == "booked"])
    return {
        "visit": visit[0],
        "number": len(tables["prescriptions"]) + 1,
        "drug": rng.choice(DRUGS),
        "days": rng.choice((5, 7, 10)),
        "longer": rng.choice((5, 10, 15)),
    }
