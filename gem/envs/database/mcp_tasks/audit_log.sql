CREATE TABLE log (
  entry bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  employee_id integer NOT NULL,
  action text NOT NULL,
  old_value integer,
  new_value integer
);
