"""Environments that only another process shows to be broken; it imports this module by name."""

import multiprocessing
import os

from gem.core import Start, Step
from gem.errors import NoSolver
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


class HasNoActor(KnowsItsProcess):
    __doc__ = EchoEnv.__doc__

    def sample_random_action(self):
        raise NoSolver


class NeedsItsMainProcess(EchoEnv):
    __doc__ = EchoEnv.__doc__

    def step(self, action):
        assert multiprocessing.parent_process() is None
        return super().step(action)
