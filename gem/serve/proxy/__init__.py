"""A recording proxy between agent programs and a model: their calls become episodes."""
