"""An environment that only another process can show to be broken; the tests import it by name."""

import os

from gem.core import Start, Step
from gem.testing import EchoEnv


class HashOrdered(EchoEnv):
    __doc__ = EchoEnv.__doc__

    def reset(self, seed=None):
        obs, info = super().reset(seed)
        return Start(f"{obs} {set('abcdefgh')}", info)


class KnowsItsProcess(EchoEnv):
    __doc__ = EchoEnv.__doc__

    def step(self, action):
        return Step(str(os.getpid()), *super().step(action)[1:])
