CREATE TABLE accounts (
  id integer PRIMARY KEY,
  owner text NOT NULL,
  balance numeric(12,2) NOT NULL
);

CREATE TABLE entries (
  id integer PRIMARY KEY,
  account_id integer NOT NULL REFERENCES accounts (id),
  booked_on date NOT NULL,
  amount numeric(12,2) NOT NULL
);
