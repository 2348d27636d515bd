CREATE TABLE students (id INTEGER PRIMARY KEY, name TEXT NOT NULL, major TEXT NOT NULL,
  entered INTEGER NOT NULL);
CREATE TABLE courses (id INTEGER PRIMARY KEY, title TEXT NOT NULL, subject TEXT NOT NULL,
  credits INTEGER NOT NULL, seats INTEGER NOT NULL);
CREATE TABLE enrolments (student_id INTEGER NOT NULL REFERENCES students(id),
  course_id INTEGER NOT NULL REFERENCES courses(id), term TEXT NOT NULL, grade INTEGER,
  PRIMARY KEY (student_id, course_id));
