"""OpenEnv's own server over an environment of gem's: the port and the number of sessions are its arguments.

`gem` is on PYTHONPATH here, unlike in the other scripts: the same environment stands behind both servers.
"""

import sys

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State
from openenv.core.env_server.http_server import create_fastapi_app

from gem.testing.doubles import EchoEnv

TURNS = 1_000_000


class Said(Action):
    """An action."""

    text: str


class Seen(Observation):
    """An observation."""

    text: str


class Echo(Environment):
    """EchoEnv, as OpenEnv's environments are written."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        """Make the environment."""
        super().__init__()
        self._env = EchoEnv(turns=TURNS)
        self._state = State()

    def reset(self, seed=None, episode_id=None, **kwargs):
        """Begin an episode."""
        obs, _ = self._env.reset(seed=seed)
        self._state = State(episode_id=episode_id, step_count=0)
        return Seen(text=obs, done=False, reward=None)

    def step(self, action, timeout_s=None, **kwargs):
        """Take a step."""
        obs, reward, terminated, truncated, info = self._env.step(action.text)
        self._state.step_count += 1
        return Seen(text=obs, reward=reward, done=terminated or truncated, metadata={"info": info})

    @property
    def state(self):
        """Return the state."""
        return self._state


if __name__ == "__main__":
    app = create_fastapi_app(Echo, Said, Seen, max_concurrent_envs=int(sys.argv[2]))
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False)
