"""What a run records and shows: its folder, figures, alarms, loggers and callbacks."""
