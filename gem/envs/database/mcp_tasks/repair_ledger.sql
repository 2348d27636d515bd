CREATE TABLE transfers (
  id integer PRIMARY KEY,
  source_id integer NOT NULL REFERENCES accounts (id),
  target_id integer NOT NULL REFERENCES accounts (id),
  amount numeric(12,2) NOT NULL,
  made_on date NOT NULL
);
