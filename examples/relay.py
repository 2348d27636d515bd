"""A relay: an environment in a file of its own, with a reward in every turn; docs/start/street.md uses it."""

import re

from gem import Env

NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eve", "Finn")


class Relay(Env):
    """Pass the baton on to the runner who is next in the order, four times; each right pass earns 0.25."""

    def reset(self, seed=None):
        super().reset(seed)
        self.order = self.rng.sample(NAMES, 4)
        self.passes = self.right = 0
        return self.show(self.rng.randrange(4)), {}

    def show(self, holder):
        self.next = self.order[(holder + 1) % 4]
        order = ", ".join([*self.order, self.order[0]])
        return f"The order is {order}. {self.order[holder]} has the baton. Who is next? Answer with one name."

    def step(self, action):
        said = re.findall("|".join(NAMES), action)
        hit = said[:1] == [self.next]
        self.passes, self.right = self.passes + 1, self.right + hit
        over = self.passes == 4
        info = {"success": self.right == 4} if over else {}
        return self.show(self.order.index(self.next)), 0.25 * hit, over, False, info
