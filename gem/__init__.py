r"""gem: a gym for language agents.

::

    import gem

    env = gem.make("game:GuessTheNumber-v0-easy")
    obs, info = env.reset(seed=0)
    obs, reward, terminated, truncated, info = env.step(r"\boxed{5}")

The core names are here. Everything else is in a package: `gem.hosts`, `gem.vector`, `gem.wrappers`,
`gem.rollout`, `gem.agents`, `gem.train`, `gem.testing`.
"""

import typing as _typing

from gem import _upstream
from gem.content import Image, Message, Text
from gem.core import Env, EnvWrapper, Start, Step
from gem.envs import catalog as _catalog
from gem.errors import GemError
from gem.record import Agent, Episode, Limits
from gem.registry import ids, make, print_envs, register, spec
from gem.specs import EnvSpec

if _typing.TYPE_CHECKING:
    from gem.vector import make_vec

_catalog.register_all()
_upstream.serve()

__version__ = "0.3.0"

__all__ = [
    "Agent",
    "Env",
    "EnvSpec",
    "EnvWrapper",
    "Episode",
    "GemError",
    "Image",
    "Limits",
    "Message",
    "Start",
    "Step",
    "Text",
    "__version__",
    "ids",
    "make",
    "make_vec",
    "print_envs",
    "register",
    "spec",
]


def __getattr__(name: str) -> _typing.Any:
    if name == "make_vec":  # what it needs is loaded with its first use
        from gem.vector import make_vec

        return make_vec
    raise AttributeError(f"module 'gem' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
