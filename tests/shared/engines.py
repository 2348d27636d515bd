"""What stands behind a framework's own rollout class in tests: a small model that samples, and a task."""

import asyncio

import torch
from random_models import make_model, make_renderer

from gem import Env, Start, Step
from gem.errors import NoVerdict

RENDERER = make_renderer("<|im_start|>", "<|im_end|>")  # by these names frameworks know Qwen's tokenizers
RENDERER.tokenizer.pad_token = "<|im_end|>"


class TinyEngine:
    """Samples behind token ids, a whole forward pass per token; each call has noise of its own.

    `asked` holds every prompt.
    """

    def __init__(self, model=None, seed=0):
        self.model = make_model() if model is None else model
        self.chance = torch.Generator().manual_seed(seed)
        self.asked = []

    def save(self, folder):
        """Write the model and its tokenizer as a checkpoint of transformers."""
        self.model.save_pretrained(folder)
        RENDERER.tokenizer.save_pretrained(folder)

    def sample(self, prompt_ids, max_tokens, temperature=1.0, stop_ids=()):
        """Return the sampled ids and their log probabilities."""
        self.asked.append(list(prompt_ids))
        ids, logprobs = list(prompt_ids), []
        with torch.inference_mode():
            while len(logprobs) < max_tokens and not (logprobs and ids[-1] in stop_ids):
                logits = self.model(torch.tensor([ids])).logits[0, -1].float()
                logprob_V = torch.log_softmax(logits / temperature, -1)
                token = torch.multinomial(logprob_V.exp(), 1, generator=self.chance).item()
                ids.append(token)
                logprobs.append(logprob_V[token].item())
        return ids[len(prompt_ids) :], logprobs

    async def sample_soon(self, *args, **kwargs):
        """Do so after letting others go first, as a server would."""
        await asyncio.sleep(0)
        return self.sample(*args, **kwargs)

    def logprobs(self, ids):
        """Return the log probability of each token but the first behind those before it."""
        with torch.inference_mode():
            logprob_TV = torch.log_softmax(self.model(torch.tensor([ids])).logits[0].float(), -1)
        return [logprob_TV[place, token].item() for place, token in enumerate(ids[1:])]


class Letters(Env):
    """Pays each answer by its letters, for a number of turns that depends on the seed.

    A random model earns something else each time. `breaks`: the seeds whose second step fails.
    """

    def __init__(self, breaks=()):
        self.breaks = tuple(breaks)

    def reset(self, seed=None):
        super().reset(seed)
        self.seed, self.turn, self.turns = seed, 0, self.rng.randint(2, 4)
        return Start("the secret number " * self.rng.randint(1, 3), {})

    def step(self, action):
        self.turn += 1
        if self.turn == 2 and self.seed in self.breaks:
            raise NoVerdict("the tool server is gone.")
        reward = sum(map(ord, action)) % 11 / 4
        return Step("higher or lower", reward, self.turn == self.turns, False, {})
