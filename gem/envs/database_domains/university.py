"""A university: students, courses, enrolments and exams' grades."""

from __future__ import annotations

from random import Random

from gem.envs.database_domains.domain import Domain, Operation, Question, Tables, literal, people

SUBJECTS = ("biology", "economics", "history", "mathematics", "physics")
LEVELS = ("Introduction to", "Methods of", "Seminar in", "Topics in", "Advanced", "Frontiers of")
TERMS = ("2024-spring", "2024-autumn", "2025-spring")

SCHEMA = """
CREATE TABLE students (id INTEGER PRIMARY KEY, name TEXT NOT NULL, major TEXT NOT NULL,
  entered INTEGER NOT NULL);
CREATE TABLE courses (id INTEGER PRIMARY KEY, title TEXT NOT NULL, subject TEXT NOT NULL,
  credits INTEGER NOT NULL, seats INTEGER NOT NULL);
CREATE TABLE enrolments (student_id INTEGER NOT NULL REFERENCES students(id),
  course_id INTEGER NOT NULL REFERENCES courses(id), term TEXT NOT NULL, grade INTEGER,
  PRIMARY KEY (student_id, course_id));
"""


def fill(rng: Random) -> Tables:
    """Return the rows of a university; grades are 0 to 100, NULL where there is none yet."""
    students = [
        (i, name, rng.choice(SUBJECTS), rng.randrange(2021, 2025))
        for i, name in enumerate(people(rng, 40), 1)
    ]
    titles = [(f"{level} {subject}", subject) for subject in SUBJECTS for level in LEVELS]
    courses = [
        (i, title, subject, rng.choice((3, 5, 6, 10)), rng.randrange(8, 31))
        for i, (title, subject) in enumerate(titles, 1)
    ]
    enrolments = []
    for student in students:
        for course in sorted(rng.sample(range(1, 31), rng.randrange(1, 7))):
            term = rng.choice(TERMS)
            grade = None if term == TERMS[-1] else rng.randrange(20, 101)
            enrolments.append((student[0], course, term, grade))
    return {"students": students, "courses": courses, "enrolments": enrolments}


def credit(rng: Random, tables: Tables) -> Question:
    """Ask for the credits earned."""
    mark, most = rng.randrange(35, 66), rng.randrange(5, 16)
    return Question(
        f"A course is passed with a grade of {mark} or more. Give name and sum of credits of passed courses "
        f"of every student who has earned more than {most} credits so.",
        "SELECT s.name, SUM(c.credits) FROM students s JOIN enrolments e ON e.student_id = s.id "
        f"JOIN courses c ON c.id = e.course_id WHERE e.grade >= {mark} GROUP BY s.id, s.name "
        f"HAVING SUM(c.credits) > {most}",
    )


def outside(rng: Random, tables: Tables) -> Question:
    """Ask for students who take nothing of a subject."""
    subject, year, seats = rng.choice(SUBJECTS), rng.choice((2021, 2022, 2023)), rng.randrange(8, 24)
    return Question(
        f"Which students who entered in {year} or later are enrolled in no course of the subject {subject} "
        f"that has more than {seats} seats, in any term? Give name and major.",
        f"SELECT s.name, s.major FROM students s WHERE s.entered >= {year} AND NOT EXISTS "
        "(SELECT 1 FROM enrolments e JOIN courses c ON c.id = e.course_id WHERE e.student_id = s.id "
        f"AND c.subject = {literal(subject)} AND c.seats > {seats})",
    )


def above_average(rng: Random, tables: Tables) -> Question:
    """Ask for grades above the subject's mean."""
    term, year, points = rng.choice(TERMS[:2]), rng.choice((2022, 2023, 2024)), rng.randrange(1, 25)
    return Question(
        f"Which grades that students who entered in {year} or before got in the term {term} lie more than "
        f"{points} points above the average grade of that term in their course's subject (the average over "
        "all students)? Give student's name, course's title and grade.",
        "WITH mean AS (SELECT c.subject, AVG(e.grade) AS middle FROM enrolments e JOIN courses c "
        f"ON c.id = e.course_id WHERE e.term = '{term}' GROUP BY c.subject) "
        "SELECT s.name, c.title, e.grade FROM enrolments e JOIN students s ON s.id = e.student_id "
        "JOIN courses c ON c.id = e.course_id JOIN mean m ON m.subject = c.subject "
        f"WHERE e.term = '{term}' AND s.entered <= {year} AND e.grade > m.middle + {points}",
    )


def popular(rng: Random, tables: Tables) -> Question:
    """Ask for the most attended courses."""
    count, year, seats = rng.choice((3, 4, 5)), rng.choice((2022, 2023, 2024)), rng.randrange(16, 31)
    return Question(
        f"Which {count} of the courses with at most {seats} seats have the most enrolments by students who "
        f"entered in {year} or before, over all terms? Give title and number of those enrolments, most "
        "first; of equals the course with the lower id comes first.",
        "SELECT c.title, COUNT(*) AS number FROM courses c JOIN enrolments e ON e.course_id = c.id "
        f"JOIN students s ON s.id = e.student_id WHERE c.seats <= {seats} AND s.entered <= {year} "
        f"GROUP BY c.id, c.title ORDER BY number DESC, c.id LIMIT {count}",
        ordered=True,
    )


def grade(rng: Random, tables: Tables) -> Operation:
    """Raise the grades of an exam."""
    term = rng.choice(TERMS[:2])
    course = rng.choice([row for row in tables["enrolments"] if row[2] == term])[1]
    points = rng.randrange(3, 10)
    return Operation(
        f"The exam of course {course} in the term {term} was too hard: add {points} to every grade of "
        "that course "
        "in that term, but no grade may be above 100: where it would be, it becomes 100.",
        f"UPDATE enrolments SET grade = CASE WHEN grade + {points} > 100 THEN 100 ELSE grade + {points} END "
        f"WHERE course_id = {course} AND term = '{term}';",
    )


def leave(rng: Random, tables: Tables) -> Operation:
    """Close a course."""
    course = rng.choice(tables["enrolments"])[1]
    return Operation(
        f"Course {course} is given up: delete it and all enrolments in it.",
        f"DELETE FROM enrolments WHERE course_id = {course}; DELETE FROM courses WHERE id = {course};",
    )


def enter(rng: Random, tables: Tables) -> Operation:
    """Enrol a new student."""
    number, major = len(tables["students"]) + 1, rng.choice(SUBJECTS)
    least, seats = rng.choice((3, 5, 6)), rng.randrange(14, 28)
    return Operation(
        f"Enter a new student with id {number}, name 'Zoe Zimmer', major {major}, entered 2025, and "
        "enrol the "
        f"student in the term 2025-autumn, without a grade, in every course of the subject {major} "
        "that has more "
        f"than {least} credits or more than {seats} seats. Take one seat away from each of those courses.",
        f"INSERT INTO students VALUES ({number}, 'Zoe Zimmer', {literal(major)}, 2025); "
        f"INSERT INTO enrolments SELECT {number}, id, '2025-autumn', NULL FROM courses "
        f"WHERE subject = {literal(major)} AND (credits > {least} OR seats > {seats}); "
        "UPDATE courses SET seats = seats - 1 WHERE id IN "
        f"(SELECT course_id FROM enrolments WHERE student_id = {number});",
    )


UNIVERSITY = Domain(
    "University",
    "a university",
    SCHEMA,
    fill,
    (credit, outside, above_average, popular),
    (grade, leave, enter),
)
