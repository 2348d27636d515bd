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
    most = rng.choice((10, 12, 15))
    return Question(
        "A course is passed with a grade of 50 or more. Give name and sum of credits of passed courses of "
        f"every student who has earned more than {most} credits so.",
        "SELECT s.name, SUM(c.credits) FROM students s JOIN enrolments e ON e.student_id = s.id "
        "JOIN courses c ON c.id = e.course_id WHERE e.grade >= 50 GROUP BY s.id, s.name "
        f"HAVING SUM(c.credits) > {most}",
    )


def outside(rng: Random, tables: Tables) -> Question:
    """Ask for students who take nothing of a subject."""
    subject = rng.choice(SUBJECTS)
    return Question(
        f"Which students are enrolled in no course of the subject {subject}, in any term? Give name "
        "and major.",
        "SELECT s.name, s.major FROM students s WHERE NOT EXISTS (SELECT 1 FROM enrolments e JOIN courses c "
        f"ON c.id = e.course_id WHERE e.student_id = s.id AND c.subject = {literal(subject)})",
    )


def above_average(rng: Random, tables: Tables) -> Question:
    """Ask for grades above the course's mean."""
    term = rng.choice(TERMS[:2])
    return Question(
        f"Which grades of the term {term} lie above the average grade of their course in that same "
        "term? Give "
        "student's name, course's title and grade.",
        "WITH mean AS (SELECT course_id, AVG(grade) AS middle FROM enrolments "
        f"WHERE term = '{term}' GROUP BY course_id) SELECT s.name, c.title, e.grade FROM enrolments e "
        "JOIN mean m ON m.course_id = e.course_id JOIN students s ON s.id = e.student_id "
        f"JOIN courses c ON c.id = e.course_id WHERE e.term = '{term}' AND e.grade > m.middle",
    )


def popular(rng: Random, tables: Tables) -> Question:
    """Ask for the most attended courses."""
    count, year = rng.choice((3, 5)), rng.choice((2022, 2023, 2024))
    return Question(
        f"Which {count} courses have the most enrolments by students who entered in {year} or before, over "
        "all terms? Give title and number of those enrolments, most first; of equals the course with "
        "the lower "
        "id comes first.",
        "SELECT c.title, COUNT(*) AS number FROM courses c JOIN enrolments e ON e.course_id = c.id "
        f"JOIN students s ON s.id = e.student_id WHERE s.entered <= {year} GROUP BY c.id, c.title "
        f"ORDER BY number DESC, c.id LIMIT {count}",
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
    least = rng.choice((3, 5, 6))
    return Operation(
        f"Enter a new student with id {number}, name 'Zoe Zimmer', major {major}, entered 2025, and "
        "enrol the "
        f"student in the term 2025-autumn, without a grade, in every course of the subject {major} "
        "that has more "
        f"than {least} credits or more than 20 seats. Take one seat away from each of those courses.",
        f"INSERT INTO students VALUES ({number}, 'Zoe Zimmer', {literal(major)}, 2025); "
        f"INSERT INTO enrolments SELECT {number}, id, '2025-autumn', NULL FROM courses "
        f"WHERE subject = {literal(major)} AND (credits > {least} OR seats > 20); "
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
