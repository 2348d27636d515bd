"""A relay: an environment in a file of its own, with a reward in every turn."""

import re

from gem import Env

WORDS = [
    *("apple", "bread", "chair", "dance", "eagle", "flower"),
    *("green", "house", "island", "juice", "king", "lemon"),
]


class Relay(Env):
    """Pass on the word that you are handed, as it is, three times; each right pass earns a third."""

    def reset(self, seed=None):
        super().reset(seed)
        self.words = self.rng.sample(WORDS, 3)
        self.passes = self.right = 0
        return f"Pass on each word that you are handed. {self.hand_over()}", {}

    def hand_over(self):
        return f"The word: {self.words[self.passes]}."

    def step(self, action):
        hit = re.findall("[a-z]+", action.lower())[:1] == [self.words[self.passes]]
        self.passes, self.right = self.passes + 1, self.right + hit
        if self.passes == 3:
            return "The race is over.", hit / 3, True, False, {"success": self.right == 3}
        return self.hand_over(), hit / 3, False, False, {}
