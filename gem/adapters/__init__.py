"""Results out and in: stored episodes in the formats of other tools, and back; gem under their runners.

`rows` writes JSON lines and `parquet` Parquet, `atif` Harbor's trajectories, `inspect_logs` the logs of
Inspect; `inspect_tasks` gives gem's environments to ``inspect eval``. A module that needs somebody's package
raises MissingExtra when it is imported without it.

What a format has no place for travels along as the episode's own record (`gem.adapters.carried`), so that
what gem wrote comes back as the same episodes.
"""
