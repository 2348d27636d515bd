CREATE TABLE visits (
  id integer PRIMARY KEY,
  city text NOT NULL,
  patient text NOT NULL,
  fee integer NOT NULL,
  seen_on date NOT NULL
);
