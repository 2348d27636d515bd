CREATE TABLE rates (
  currency text NOT NULL,
  valid_from date NOT NULL,
  rate numeric(12,4) NOT NULL,
  PRIMARY KEY (currency, valid_from)
);
