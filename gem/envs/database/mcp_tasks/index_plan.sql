CREATE TABLE events (
  id integer PRIMARY KEY,
  email text NOT NULL,
  kind text NOT NULL,
  state text NOT NULL,
  at timestamp NOT NULL
);
