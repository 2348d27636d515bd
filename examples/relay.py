"""A relay: an environment in a file of its own, with a reward in every turn."""

import re

from gem import Env

NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eve", "Finn")


class Relay(Env):
    """Pass the baton to the runner who is next in the order, four times; a right pass earns 0.25."""

    def reset(self, seed=None):
        super().reset(seed)
        self.order = self.rng.sample(NAMES, 4)
        self.holder, self.passes, self.right = self.rng.randrange(4), 0, 0
        order = ", ".join([*self.order, self.order[0]])
        return f"The order: {order}. Answer with the next name alone. {self.ask()}", {}

    def ask(self):
        return f"Who is after {self.order[self.holder]}?"

    def step(self, action):
        self.holder = (self.holder + 1) % 4
        hit = re.findall("|".join(NAMES), action)[:1] == [self.order[self.holder]]
        self.passes, self.right = self.passes + 1, self.right + hit
        over = self.passes == 4
        return self.ask(), 0.25 * hit, over, False, {"success": self.right == 4} if over else {}
