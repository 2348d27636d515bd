CREATE TABLE products (
  id integer PRIMARY KEY,
  category text NOT NULL
);

CREATE TABLE withdrawn (
  product_id integer NOT NULL REFERENCES products
);

CREATE TABLE sold (
  product_id integer NOT NULL,
  units integer NOT NULL,
  sold_on date NOT NULL
);
