"""The names of upstream's `gem.utils`; each module says where gem defines them."""
