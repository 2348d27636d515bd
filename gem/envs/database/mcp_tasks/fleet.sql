CREATE TABLE devices (
  id integer PRIMARY KEY,
  name text NOT NULL,
  site text NOT NULL
);

CREATE TABLE readings (
  device_id integer NOT NULL,
  at timestamp NOT NULL,
  value numeric(6,1) NOT NULL,
  PRIMARY KEY (device_id, at)
);
