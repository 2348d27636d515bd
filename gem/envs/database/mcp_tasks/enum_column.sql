CREATE TABLE tickets (
  id integer PRIMARY KEY,
  title text NOT NULL,
  state text
);
