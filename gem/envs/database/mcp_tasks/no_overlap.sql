CREATE TABLE bookings (
  id integer PRIMARY KEY,
  room integer NOT NULL,
  starts date NOT NULL,
  ends date NOT NULL,
  status text NOT NULL
);
