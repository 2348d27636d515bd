"""Train with Tinker's cookbook on a gem environment: its rollouts, groups, advantages and training step.

    python examples/researcher/tinker_train.py [--steps 15]

Needs: pip install 'gem-gym[tinker,train]', and no account: `Local` replaces Tinker's service on this CPU,
with a random model of 0.1 M parameters. The mean return rises from about 0.25 to 0.8 in half a minute. To
train on the service, change the two lines marked SERVICE. For long runs, use `GemDatasetBuilder` in the
cookbook's own loop, ``tinker_cookbook.rl.train.main``, which adds checkpoints, evaluation and logs.

Verified: tier B (the cookbook's own classes over `Local`, which really samples and learns), with tinker
0.38.0 and tinker-cookbook 0.5.8. The service itself was not used.
"""

import argparse
import asyncio

import tinker
import torch
from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages
from tinker_cookbook.rl.metric_util import compute_trajectory_metrics
from tinker_cookbook.rl.rollout_strategy import RetryOnFailure
from tinker_cookbook.rl.rollouts import do_group_rollout_and_filter_constant_reward
from tinker_cookbook.rl.train import train_step
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

import gem
from gem.adapters.tinker import GemDataset
from gem.agents.sampling import sample
from gem.tokens.chat_template import ChatTemplateRenderer


class Digits(gem.Env):
    """Answer with digits and nothing else, three times; each answer earns its share of digits, over three."""

    def reset(self, seed=None):
        super().reset(seed)
        self.turn = 0
        return gem.Start(f"Say digits, such as {self.rng.randrange(100)}.", {})

    def step(self, action):
        self.turn += 1
        share = sum(c in "0123456789" for c in action) / max(1, len(action))
        stop = "solved" if share == 1.0 else "failed"  # by the last answer
        return gem.Step("More.", share / 3, self.turn == 3, False, {"stop": stop} if self.turn == 3 else {})


class Done:
    """A future of the service whose result is there."""

    def __init__(self, result):
        self.result = result

    async def result_async(self):
        return self.result


class Local:
    """Both clients of the service, for a model on this machine."""

    def __init__(self, model, seed=0):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters())
        self.chance = torch.Generator().manual_seed(seed)

    async def save_weights_and_get_sampling_client_async(self):
        return self

    @torch.inference_mode()
    async def sample_async(self, prompt, num_samples, sampling_params):
        fresh, tokens, logprobs, past = prompt.to_ints(), [], [], None
        while len(tokens) < sampling_params.max_tokens:
            out = self.model(torch.tensor([fresh]), past_key_values=past, use_cache=True)
            u = torch.rand(1, generator=self.chance, dtype=torch.float64)
            ids, logps = sample(out.logits[:, -1], sampling_params.temperature, u)
            fresh, past = ids.tolist(), out.past_key_values
            tokens += fresh
            logprobs += logps.tolist()
            if tokens[-1] in sampling_params.stop:
                break
        ended = "stop" if tokens[-1] in sampling_params.stop else "length"
        columns = torch.tensor(tokens).numpy(), torch.tensor(logprobs).numpy()
        return tinker.SampleResponse(sequences=[tinker.SampledSequence(ended, "", *columns)])

    async def forward_backward_async(self, data, loss_fn, loss_fn_config=None):
        outputs = []
        for datum in data:
            targets, old, advantages = (
                datum.loss_fn_inputs[name].to_torch() for name in ("target_tokens", "logprobs", "advantages")
            )
            logits = self.model(torch.tensor([datum.model_input.to_ints()])).logits[0]
            new = logits.log_softmax(-1).gather(-1, targets[:, None])[:, 0]
            (-((new - old).exp() * advantages).sum()).backward()  # importance sampling
            outputs.append({"logprobs": tinker.TensorData.from_torch(new.detach())})
        return Done(tinker.ForwardBackwardOutput(loss_fn_output_type="", loss_fn_outputs=outputs, metrics={}))

    async def optim_step_async(self, adam_params):
        for group in self.optimizer.param_groups:
            group["lr"] = adam_params.learning_rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        return Done(tinker.OptimStepResponse())


def tiny_model():
    """Return a tokenizer of few letters with a chat template, and a small Qwen3 with random weights."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=60, special_tokens=["<|start|>", "<|end|>"], show_progress=False)
    bpe.train_from_iterator(["user assistant\nSay digits, such as More. 0123456789"], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|end|>")
    tokenizer.chat_template = (
        "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
    )
    torch.manual_seed(0)
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": len(tokenizer)}
    return tokenizer, Qwen3ForCausalLM(Qwen3Config(**shape, **heads)).eval()


async def learn(steps, batch_size=4, group_size=8):
    """Train, and return the mean return of each step."""
    tokenizer, model = tiny_model()  # SERVICE: get_tokenizer(NAME)
    client = Local(model)  # SERVICE: tinker.ServiceClient().create_lora_training_client(base_model=NAME)

    gem.register("example:Digits-v0", Digits)
    renderer = ChatTemplateRenderer(tokenizer)
    dataset = GemDataset(["example:Digits-v0"], renderer, steps, batch_size, group_size)
    returns = []
    for step in range(steps):
        sampler = await client.save_weights_and_get_sampling_client_async()
        builders = dataset.get_batch(step)
        strategy = RetryOnFailure()  # an episode without verdict is played again, and never counts as 0
        rollouts = [
            do_group_rollout_and_filter_constant_reward(sampler, each, 8, 1.0, False, False, strategy)
            for each in builders
        ]
        groups = [group for group in await asyncio.gather(*rollouts) if group is not None]
        data, _ = assemble_training_data(groups, compute_advantages(groups))
        await train_step(data, client, 3e-3, num_substeps=1, loss_fn="importance_sampling")
        metrics = compute_trajectory_metrics(groups, [each.logging_tags() for each in builders])
        returns.append(metrics["env/all/reward/total"])
        print(f"step {step:2}  return {returns[-1]:.3f}  success {metrics['env/all/success']:.2f}")
    return returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=15)
    asyncio.run(learn(parser.parse_args().steps))
