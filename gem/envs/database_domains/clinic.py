"""A clinic: doctors, patients, appointments and prescriptions."""

from __future__ import annotations

from random import Random

from gem.envs.database_domains.domain import Domain, Operation, Question, Tables, day, literal, people, period

FIELDS = ("cardiology", "dermatology", "neurology", "paediatrics")
DRUGS = ("amoxicillin", "ibuprofen", "insulin", "metformin", "salbutamol")
STATES = ("booked", "kept", "missed")

SCHEMA = """
CREATE TABLE doctors (id INTEGER PRIMARY KEY, name TEXT NOT NULL, field TEXT NOT NULL);
CREATE TABLE patients (id INTEGER PRIMARY KEY, name TEXT NOT NULL, born DATE NOT NULL);
CREATE TABLE appointments (id INTEGER PRIMARY KEY, doctor_id INTEGER NOT NULL REFERENCES doctors(id),
  patient_id INTEGER NOT NULL REFERENCES patients(id), held DATE NOT NULL, minutes INTEGER NOT NULL,
  state TEXT NOT NULL);
CREATE TABLE prescriptions (id INTEGER PRIMARY KEY,
  appointment_id INTEGER NOT NULL REFERENCES appointments(id),
  drug TEXT NOT NULL, days INTEGER NOT NULL);
"""


def fill(rng: Random) -> Tables:
    """Return the rows of a clinic."""
    names = people(rng, 70)
    doctors = [(i, names[i - 1], FIELDS[i % len(FIELDS)]) for i in range(1, 31)]
    patients = [(i, names[i + 29], day(rng, "1935-01-01", "2020-12-31")) for i in range(1, 41)]
    appointments = []
    for i in range(1, 131):
        held = day(rng, "2024-01-01", "2025-08-31")
        state = rng.choice(("kept", "kept", "missed")) if held < "2025-06-30" else "booked"
        minutes = 5 * rng.randrange(2, 13)
        appointments.append((i, rng.randrange(1, 31), rng.randrange(1, 41), held, minutes, state))
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


def never_seen(rng: Random, tables: Tables) -> Question:
    """Ask for patients who never came to a field."""
    field, born = rng.choice(FIELDS), day(rng, "1950-01-01", "2005-12-31")
    return Question(
        f"Which patients born before {born} have no appointment in the state 'kept' with a doctor of "
        f"{field}? Give their names.",
        f"SELECT p.name FROM patients p WHERE p.born < '{born}' AND NOT EXISTS (SELECT 1 FROM appointments a "
        "JOIN doctors d ON d.id = a.doctor_id WHERE a.patient_id = p.id AND a.state = 'kept' "
        f"AND d.field = {literal(field)})",
    )


def busiest(rng: Random, tables: Tables) -> Question:
    """Ask for the doctors with the most minutes."""
    field, count, (first, last) = rng.choice(FIELDS), rng.choice((2, 3)), period(rng, 200, 450)
    return Question(
        f"Which {count} doctors of {field} have the most minutes in appointments in the state 'kept' that "
        f"were held from {first} to {last}, both days included? Give name and sum of minutes, most minutes "
        "first; of equals the one with the lower id comes first.",
        "SELECT d.name, SUM(a.minutes) AS total FROM doctors d JOIN appointments a ON a.doctor_id = d.id "
        f"WHERE d.field = {literal(field)} AND a.state = 'kept' AND a.held BETWEEN '{first}' AND '{last}' "
        f"GROUP BY d.id, d.name ORDER BY total DESC, d.id LIMIT {count}",
        ordered=True,
    )


def missed(rng: Random, tables: Tables) -> Question:
    """Ask for the share of missed appointments."""
    first, last = period(rng, 120, 400)
    return Question(
        "For each field of the doctors, give the field, the number of appointments held from "
        f"{first} to {last}, both days included, and how many of those are in the state 'missed' (0 where "
        "none is). A field without appointments in that time is left out.",
        "SELECT d.field, COUNT(*), SUM(CASE WHEN a.state = 'missed' THEN 1 ELSE 0 END) FROM doctors d "
        f"JOIN appointments a ON a.doctor_id = d.id WHERE a.held BETWEEN '{first}' AND '{last}' "
        "GROUP BY d.field",
    )


def last_drug(rng: Random, tables: Tables) -> Question:
    """Ask for the last prescription of a drug to each patient."""
    drug, until = rng.choice(DRUGS), day(rng, "2024-08-01", "2025-06-15")
    return Question(
        f"For every patient who was prescribed {drug} in an appointment held on or before {until}, give the "
        "patient's name, and date (held) of the appointment and days of the latest such prescription: the "
        "one of the latest appointment up to that day, of several on one date the one with the highest "
        "prescription id.",
        "WITH given AS (SELECT p.name, a.held, r.days, ROW_NUMBER() OVER (PARTITION BY p.id ORDER BY "
        "a.held DESC, r.id DESC) AS place FROM prescriptions r JOIN appointments a ON a.id = "
        f"r.appointment_id JOIN patients p ON p.id = a.patient_id WHERE r.drug = {literal(drug)} "
        f"AND a.held <= '{until}') SELECT name, held, days FROM given WHERE place = 1",
    )


def hand_over(rng: Random, tables: Tables) -> Operation:
    """Give a doctor's booked appointments to another."""
    old = rng.choice([row for row in tables["appointments"] if row[5] == "booked"])[1]
    new = rng.choice([row[0] for row in tables["doctors"] if row[0] != old])
    return Operation(
        f"The doctor with id {old} is ill: give all appointments of that doctor in the state 'booked' to the "
        f"doctor with id {new}, and leave the others as they are.",
        f"UPDATE appointments SET doctor_id = {new} WHERE doctor_id = {old} AND state = 'booked';",
    )


def forget(rng: Random, tables: Tables) -> Operation:
    """Delete a patient with everything."""
    patient = rng.choice(tables["appointments"])[2]
    return Operation(
        f"Delete the patient with id {patient}, with all appointments of that patient and the prescriptions "
        "made in them.",
        "DELETE FROM prescriptions WHERE appointment_id IN "
        f"(SELECT id FROM appointments WHERE patient_id = {patient}); "
        f"DELETE FROM appointments WHERE patient_id = {patient}; DELETE FROM patients WHERE id = {patient};",
    )


def keep(rng: Random, tables: Tables) -> Operation:
    """Enter what happened at an appointment."""
    visit = rng.choice([row for row in tables["appointments"] if row[5] == "booked"])
    drug, days = rng.choice(DRUGS), rng.choice((5, 7, 10))
    number, longer = len(tables["prescriptions"]) + 1, rng.choice((5, 10, 15))
    return Operation(
        f"Appointment {visit[0]} took place: set its state to 'kept' and its minutes to {longer} more than "
        f"booked, and enter prescription {number} made in it: {drug} for {days} days.",
        f"UPDATE appointments SET state = 'kept', minutes = minutes + {longer} WHERE id = {visit[0]}; "
        f"INSERT INTO prescriptions VALUES ({number}, {visit[0]}, {literal(drug)}, {days});",
    )


CLINIC = Domain(
    "Clinic",
    "a clinic",
    SCHEMA,
    fill,
    (never_seen, busiest, missed, last_drug),
    (hand_over, forget, keep),
)
