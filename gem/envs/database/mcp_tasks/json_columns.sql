CREATE TABLE events (
  id integer PRIMARY KEY,
  document jsonb NOT NULL
);
