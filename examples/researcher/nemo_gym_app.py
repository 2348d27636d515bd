"""Use gem's environments in NeMo Gym: the program of a resources server, which its `gymnasium_agent` plays.

Copy it to ``resources_servers/gem/app.py``; the page "Training frameworks" has the configuration. Tasks:

    python -c "from gem.adapters.nemo_gym import write_rows; \
        write_rows('tasks.jsonl', 'db:Bank-v0-questions', range(100))"

Needs: pip install 'gem-gym[nemo]', with Python 3.13.14 or newer.

Verified: tier B, with nemo-gym 0.7.0: its resources server, agent and model server, a process each, play
episodes against a local server with the OpenAI API. This was on Python 3.11, so not through NeMo Gym's
command, which makes an environment with Python 3.13.14 for each server.
"""

from gem.adapters.nemo_gym import GemServer

if __name__ == "__main__":
    GemServer.run_webserver()
