CREATE TABLE feed (
  line integer PRIMARY KEY,
  sku text NOT NULL,
  category text NOT NULL,
  price numeric(10,2) NOT NULL,
  stock integer NOT NULL
);

CREATE TABLE feed_log (
  action text NOT NULL,
  rows_changed integer NOT NULL
);
