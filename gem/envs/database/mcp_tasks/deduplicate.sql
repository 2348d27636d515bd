CREATE TABLE contacts (
  id integer PRIMARY KEY,
  email text NOT NULL,
  name text NOT NULL,
  phone text
);

CREATE TABLE messages (
  id integer PRIMARY KEY,
  contact_id integer NOT NULL REFERENCES contacts,
  body text NOT NULL
);
