CREATE TABLE sales (
  id integer PRIMARY KEY,
  sold_on date NOT NULL,
  buyer_name text NOT NULL,
  buyer_email text NOT NULL,
  buyer_city text NOT NULL,
  amount numeric(10,2) NOT NULL
);
