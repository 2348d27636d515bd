"""A proxy between agent programs and a model, which records their calls as episodes."""
