CREATE TABLE customers (
  id integer PRIMARY KEY,
  name text NOT NULL,
  email text NOT NULL,
  city text NOT NULL,
  joined date NOT NULL
);

CREATE TABLE products (
  id integer PRIMARY KEY,
  sku text NOT NULL,
  category text NOT NULL,
  price numeric(10,2) NOT NULL,
  stock integer NOT NULL
);

CREATE TABLE orders (
  id integer PRIMARY KEY,
  customer_id integer,
  placed_on date NOT NULL,
  status text NOT NULL
);

CREATE TABLE items (
  order_id integer NOT NULL,
  product_id integer NOT NULL,
  quantity integer,
  unit_price numeric(10,2),
  PRIMARY KEY (order_id, product_id)
);
