CREATE TABLE departments (
  id integer PRIMARY KEY,
  name text NOT NULL
);

CREATE TABLE employees (
  id integer PRIMARY KEY,
  name text NOT NULL,
  department_id integer NOT NULL,
  manager_id integer,
  salary integer NOT NULL,
  hired_on date NOT NULL
);
