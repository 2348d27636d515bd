"""Episodes in the formats of other tools, exported and imported; gem under their runners and trainers.

`rows` writes JSON lines and `parquet` Parquet, `atif` Harbor's trajectories, `inspect_logs` the logs of
Inspect; `inspect_tasks` gives gem's environments to ``inspect eval``. A module that needs somebody's package
raises MissingExtra when it is imported without it.

`trl`, `verl`, `openrlhf`, `skyrl` and `tinker` give gem's episodes to trainers of others. `prompts` is how a
task stands in their data sets, `engine` how their inference engines answer: token ids in, token ids out.

What a format has no place for travels along as the episode's own record (`gem.adapters.carried`), so that
what gem wrote comes back as the same episodes.
"""
