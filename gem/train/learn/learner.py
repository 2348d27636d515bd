"""The learner: log probabilities and values of a model on sampled tokens, and optimiser steps.

It does not know rewards: an algorithm gives it rows and an objective over them. Rows are arranged so that
nothing is computed twice (`gem.train.learn.batch`). A step takes as many passes through the model as its
tokens need. Logits are computed in parts: no tensor of all tokens by the whole vocabulary exists.

N: sampled tokens of a batch. U: places whose next token was sampled. M: turns. D: width. V: vocabulary.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gem.errors import BadArgument, SchemaMismatch, StoreError
from gem.train.config import TrainConfig
from gem.train.learn import parallel
from gem.train.learn.batch import REFERENCE_LOGPROB, REFERENCE_STATES, Batch, Weighted, make_batches
from gem.train.learn.checkpoint import explain_damage
from gem.train.learn.policy import Policy

LOOKED_UP = 4096
"""Maximum number of rows whose reference outputs are cached."""

LOGITS = 1 << 25
"""Number of logits computed at a time, 128 MiB in float32."""


class GradientNotFinite(BadArgument):
    """A gradient with an infinite or NaN norm; no step was taken with it, so the weights are whole."""


class Outputs(NamedTuple):
    """The outputs of a model for a batch.

    `logprob`: the log probability of each sampled token. `entropy`: the entropy of the distribution that it
    came from. `kl`: the divergence of that distribution from the reference's, and `reference`: the token's
    log probability there; None where the batch does not note the reference's states. All four (N,), in nats.
    `value`: a critic's value before each turn (M,), None without a critic.
    """

    logprob: Tensor
    entropy: Tensor
    kl: Tensor | None
    value: Tensor | None
    reference: Tensor | None = None


Objective = Callable[[Batch, Outputs], tuple[Tensor, dict[str, Tensor]]]
"""A function of a batch and the outputs for it. It returns a loss to minimise, which is a sum, and further
sums to log."""


class Critic(nn.Module):
    """The value of the state before a turn: a linear head on the hidden state where the answer begins.

    The hidden states are those of the trained policy, or of a separate model.
    """

    def __init__(self, width: int, own: Policy | None = None) -> None:
        """Start with the value 0 for every state; `own` is the critic's separate model."""
        super().__init__()
        self.head = nn.Linear(width, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.own = own
        self.body = None if own is None else own.model  # registers its parameters

    def forward(self, batch: Batch, states_UD: Tensor) -> Tensor:
        """Return values (M,)."""
        if self.own is not None:
            states_UD = self.own.states(batch)
        at_M = batch.of[batch.first].to(states_UD.device)
        value_M: Tensor = self.head(states_UD[at_M].to(self.head.weight.dtype))[:, 0]
        return value_M


@dataclass(frozen=True, slots=True)
class Settings:
    """The optimiser settings of a learner.

    AdamW's learning rate, betas and weight decay, the norm that gradients are scaled down to, the temperature
    that tokens are sampled at, and the tokens to compute per pass through the model (None: all). `critic_lr`:
    the critic's learning rate (0: the same). `logits`: how many are computed at a time (0: `LOGITS`).
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    critic_lr: float = 0.0
    max_grad_norm: float = 1.0
    temperature: float = 1.0
    pass_tokens: int | None = None
    logits: int = 0


class Learner:
    """A policy's model and its optimiser.

    For parameters of less than 32 bits the optimiser updates float32 copies beside the model: bfloat16 would
    lose small steps. The model gets the copies rounded up or down by chance, so that it has small steps on
    average: the nearest bfloat16 of a weight is the old one until many steps together reach half of the
    distance to the next. The chance is the same in each process and after a resumption.
    """

    moved = False
    """Whether a step was taken since the run or its phase began, so that the policy is not the reference."""

    def __init__(
        self,
        policy: Policy,
        settings: Settings | None = None,
        *,
        critic: Critic | None = None,
        reference: Policy | None = None,
    ) -> None:
        """Train `policy`, and `critic` where there is one; divergence is measured from `reference`."""
        self.policy = policy
        self.settings = settings or Settings()
        self.critic = critic
        self._reference = reference
        parameters = [p for p in policy.model.parameters() if p.requires_grad]
        own = len(parameters)
        if critic is not None:
            critic.to(parameters[0].device)
            parameters += [p for p in critic.parameters() if p.requires_grad]
        self.parameters = parameters
        self._masters = [p if p.dtype.itemsize >= 4 else p.detach().float() for p in parameters]
        self._looked_up: dict[tuple[str, bytes, bytes], Tensor] = {}
        groups = [{"params": self._masters}]
        if critic is not None and self.settings.critic_lr:
            groups = [{"params": self._masters[:own]}, {"params": self._masters[own:]}]
        self.optimiser = torch.optim.AdamW(
            groups,
            lr=self.settings.lr,
            betas=self.settings.betas,
            weight_decay=self.settings.weight_decay,
        )

    @property
    def reference(self) -> Policy | None:
        """The policy that divergence is measured from."""
        return self._reference

    @reference.setter
    def reference(self, policy: Policy | None) -> None:
        self._reference = policy
        self.forget()

    def forget(self) -> None:
        """Clear the cached reference outputs, so that a resumed run rounds like an uninterrupted one."""
        self._looked_up.clear()

    # -- what the model says

    def logprobs(self, batch: Batch) -> Tensor:
        """Return the log probabilities of the batch's sampled tokens, (N,), with gradient.

        They are at the sampling temperature of the settings, in float32 or better, on the CPU.
        """
        return self.forward(batch).logprob

    def forward(self, batch: Batch) -> Outputs:
        """Return the model's outputs for a batch; see Outputs."""
        states_UD = self.policy.states(batch)
        reference_UD = None
        if REFERENCE_STATES in batch.stored_outputs:
            first_U = torch.searchsorted(batch.of, torch.arange(len(batch.place)))
            reference_UD = batch.stored_outputs[REFERENCE_STATES][first_U].to(states_UD.device)
        logprob_N, entropy_N, kl_N, reference_N = self._scores(self.policy, states_UD, reference_UD, batch)
        value_M = None if self.critic is None else self.critic(batch, states_UD).to("cpu")
        return Outputs(logprob_N, entropy_N, kl_N, value_M, reference_N)

    def _scores(
        self, policy: Policy, states_UD: Tensor, reference_UD: Tensor | None, batch: Batch
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Compute logits in parts; the backward pass computes each part again."""
        device = states_UD.device
        of_N, target_N = batch.of.to(device), batch.target.to(device)
        with torch.no_grad():
            vocabulary = policy.logits(states_UD[:1]).shape[-1]
        places = max(1, (self.settings.logits or LOGITS) // vocabulary)
        parts = []
        for start in range(0, len(states_UD), places):
            low, high = torch.searchsorted(batch.of, torch.tensor([start, start + places])).tolist()
            part = (
                policy,
                states_UD[start : start + places],
                None if reference_UD is None else reference_UD[start : start + places],
                of_N[low:high] - start,
                target_N[low:high],
            )
            if len(states_UD) > places and torch.is_grad_enabled():
                parts.append(checkpoint(self._score, *part, use_reentrant=False))
            else:
                parts.append(self._score(*part))
        logprobs, entropies, kls, references = zip(*parts, strict=True)
        kl_N = None if reference_UD is None else torch.cat(kls).to("cpu")
        reference_N = None if reference_UD is None else torch.cat(references).to("cpu")
        return torch.cat(logprobs).to("cpu"), torch.cat(entropies).to("cpu"), kl_N, reference_N

    def _score(
        self,
        policy: Policy,
        states_UD: Tensor,
        reference_UD: Tensor | None,
        of_N: Tensor,
        target_N: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        logits_UV = policy.logits(states_UD)
        if self.settings.temperature != 1:
            logits_UV = logits_UV / self.settings.temperature
        logp_UV = logits_UV.log_softmax(-1)
        probability_UV = logp_UV.exp()
        entropy_U = -(probability_UV * logp_UV).sum(-1)
        kl_N = reference_N = None
        if reference_UD is not None:
            assert self.reference is not None
            with torch.no_grad():
                reference_UV = self.reference.logits(reference_UD) / self.settings.temperature
                reference_UV = reference_UV.log_softmax(-1)
            kl_N = (probability_UV * (logp_UV - reference_UV)).sum(-1)[of_N]
            reference_N = reference_UV[of_N, target_N]
        return logp_UV[of_N, target_N], entropy_U[of_N], kl_N, reference_N

    @torch.no_grad()
    def store_outputs(self, rows: Sequence[Weighted]) -> None:
        """Store the model's outputs in the rows, before an iteration's first step.

        ``present``: the log probability of each sampled token. ``value``, with a critic: the value of its
        turn. Where several processes train, each computes those of its share of the rows, here and in
        store_reference().
        """
        for batch, part in self._batches(parallel.share(rows)):
            outputs = self.forward(batch)
            values = {"present": outputs.logprob}
            if outputs.value is not None:
                values["value"] = outputs.value[batch.turn]
            _store_values(values, batch, part)
        _exchange_outputs(rows)

    @torch.no_grad()
    def store_reference(self, rows: Sequence[Weighted], *, full: bool) -> None:
        """Store the reference's outputs in the rows, computed once per row.

        These are its log probabilities of the sampled tokens, under `REFERENCE_LOGPROB`; with `full` its
        hidden states, under `REFERENCE_STATES`, from which a divergence over the whole vocabulary is
        computed. A reference never changes, so a row that occurs again, as most do in small games, is taken
        from a cache.
        """
        if self.reference is None:
            raise BadArgument("the learner has no reference; give it one.")
        name = REFERENCE_STATES if full else REFERENCE_LOGPROB
        keys = [(name, bytes(array("q", item.row.ids)), bytes(item.row.mask)) for item in rows]
        unknown = {key: item for key, item in zip(keys, rows, strict=True) if key not in self._looked_up}
        asked = list(unknown.values())
        for batch, part in self._batches(parallel.share(asked)):
            states_UD = self.reference.states(batch)
            if full:
                _store_values({name: states_UD.to("cpu")[batch.of]}, batch, part)
            else:
                _store_values({name: self._scores(self.reference, states_UD, None, batch)[0]}, batch, part)
        _exchange_outputs(asked)
        known = {**self._looked_up, **{key: item.stored_outputs[name] for key, item in unknown.items()}}
        for key, item in zip(keys, rows, strict=True):
            item.stored_outputs[name] = known[key]
        self._looked_up = known if len(known) <= LOOKED_UP else {key: known[key] for key in unknown}

    def _batches(
        self, rows: Sequence[Weighted], *, bare: bool = True
    ) -> Iterator[tuple[Batch, list[Weighted]]]:
        policy = self.policy
        return make_batches(rows, policy.pad, policy.capacity, self.settings.pass_tokens, bare=bare)

    # -- steps

    def update(
        self, rows: Sequence[Weighted], objective: Objective, divisor: float
    ) -> tuple[dict[str, float], int]:
        """Take one step on `rows`; return the sums that the objective logs, and the positions computed.

        Among the sums are `loss` and `grad_norm`, the norm of the gradient before it is scaled down.
        The loss is the objective's sum over all rows, divided by `divisor`. Where several processes train,
        each computes its share of the rows, and all take the step of the whole.

        Raises:
            GradientNotFinite: see step().
        """
        sums: dict[str, float] = {}
        positions = 0
        for batch, _ in self._batches(parallel.share(rows), bare=False):
            loss, watched = objective(batch, self.forward(batch))
            (loss / divisor).backward()  # type: ignore[no-untyped-call]
            self._gather()
            positions += batch.positions
            for name, value in {**watched, "loss": loss.detach() / divisor}.items():
                sums[name] = sums.get(name, 0.0) + float(value)
        if parallel.world() > 1:
            parallel.add_up(parallel.missing_gradients(self._masters))
            sums = parallel.add_up_figures({**sums, "positions": float(positions)})
            positions = int(sums.pop("positions"))
        sums["grad_norm"] = self.step()
        return sums, positions

    def step(self) -> float:
        """Scale the gradients down to the settings' norm, update the weights, and return the norm before.

        Raises:
            GradientNotFinite: where that norm is not finite. Several processes have the same gradients here,
                so all raise it.
        """
        norm = float(nn.utils.clip_grad_norm_(self._masters, self.settings.max_grad_norm))
        if not math.isfinite(norm):
            self.optimiser.zero_grad()
            raise GradientNotFinite(f"the gradient is not finite: its norm is {norm}")
        self.optimiser.step()
        self.moved = True
        self.optimiser.zero_grad()
        self._spread()
        return norm

    @torch.no_grad()
    def take_over(self) -> None:
        """Update the float32 copies after other code, such as a warm-up, changed the model's weights."""
        for parameter, master in zip(self.parameters, self._masters, strict=True):
            if parameter is not master:
                master.copy_(parameter)

    @property
    def gradients(self) -> list[Tensor | None]:
        """The gradients that the next step uses, in the order of `parameters`, before scaling."""
        return [master.grad for master in self._masters]

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of the next steps; the critic's own keeps its ratio to it."""
        policy, *critic = self.optimiser.param_groups
        policy["lr"] = lr
        for group in critic:
            group["lr"] = lr * self.settings.critic_lr / self.settings.lr

    def publish(self, version: int) -> None:
        """Let the agent answer with the current weights, as policy `version`."""
        self.policy.publish(version)

    def _gather(self) -> None:
        """Add a pass's gradients to those of the float32 copies: bfloat16 would lose small ones."""
        for parameter, master in zip(self.parameters, self._masters, strict=True):
            if parameter is not master and parameter.grad is not None:
                gradient = parameter.grad.float()
                master.grad = gradient if master.grad is None else master.grad.add_(gradient)
                parameter.grad = None

    @torch.no_grad()
    def _spread(self) -> None:
        """Give the model its float32 copies, rounded."""
        copies = [pair for pair in zip(self.parameters, self._masters, strict=True) if pair[0] is not pair[1]]
        if not copies:
            return
        steps = next((int(state["step"]) for state in self.optimiser.state.values()), 0)
        chance = torch.Generator(copies[0][1].device).manual_seed(steps)
        for parameter, master in copies:
            parameter.copy_(round_by_chance(master, parameter.dtype, chance))

    # -- what a checkpoint holds

    def state(self) -> dict[str, Any]:
        """Return the state that load() restores: trained weights, critic, optimiser, and so on."""
        return {
            **weights(self.policy),
            "masters": [m for p, m in zip(self.parameters, self._masters, strict=True) if p is not m],
            "critic": None if self.critic is None else self.critic.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "moved": self.moved,
        }

    def load(self, state: dict[str, Any], where: str) -> None:
        """Restore the state that state() returned.

        Raises:
            SchemaMismatch: when it belongs to another vocabulary or another shape of the model.
        """
        load_weights(self.policy, state, where)
        if self.critic is not None:
            self.critic.load_state_dict(state["critic"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.moved = state.get("moved", bool(self.optimiser.state))  # an earlier version stored none
        copies = [m for p, m in zip(self.parameters, self._masters, strict=True) if p is not m]
        with torch.no_grad():
            for master, stored in zip(copies, state["masters"], strict=True):
                master.copy_(stored)


def round_by_chance(values: Tensor, dtype: torch.dtype, chance: torch.Generator) -> Tensor:
    """Round float32 values to one of their two neighbours in bfloat16, whose mean is the value.

    Another dtype gets the nearest values. Source: Gupta et al., arXiv 1502.02551, section 3.
    """
    if dtype is not torch.bfloat16:
        return values.to(dtype)
    bits = values.view(torch.int32)  # bfloat16 is the upper half of float32
    drawn = torch.randint(1 << 16, bits.shape, generator=chance, device=bits.device, dtype=torch.int32)
    rounded = drawn.add_(bits).bitwise_and_(-(1 << 16)).view(torch.float32)
    return torch.where(values.isfinite(), rounded, values).to(dtype)  # a NaN's bits might carry over


def _store_values(values: dict[str, Tensor], batch: Batch, rows: Sequence[Weighted]) -> None:
    """Note values of a batch's tokens in its rows: along a row places ascend, so its tokens are in order."""
    by_row = batch.row.argsort(stable=True)
    counts = batch.row.bincount().tolist()
    for name, values_N in values.items():
        for item, own in zip(rows, torch.split(values_N[by_row], counts), strict=True):
            item.stored_outputs[name] = own.clone()  # a view would keep those of all rows


def _exchange_outputs(rows: Sequence[Weighted]) -> None:
    """Give each process the stored outputs that the others computed for their shares of the rows."""
    if parallel.world() > 1:
        outputs = parallel.gather([item.stored_outputs for item in parallel.share(rows)])
        for item, values in zip(rows, outputs, strict=True):
            item.stored_outputs.update(values)


def weights(policy: Policy) -> dict[str, Any]:
    """Return the state that load_weights() takes: the trained weights and their vocabulary's hash."""
    trained = {name: p.detach() for name, p in policy.model.named_parameters() if p.requires_grad}
    return {"vocab_hash": policy.renderer.vocab_hash, "model": trained}


def check_shape(config: TrainConfig, state: dict[str, Any], where: str) -> None:
    """Check that a checkpoint holds weights of the tiny model that a config asks for, before that is built.

    Raises:
        SchemaMismatch: for another width, or another number of layers.
        StoreError: when they are no weights, or the file has fewer than it says.
    """
    if config.model != "tiny":
        return  # its files say how large it is
    with explain_damage(where):
        stored = state["model"]
        blocks = {name.split(".")[1] for name in stored if name.startswith("blocks.")}
        for name, there in (("width", stored["embed"].shape[1]), ("layers", len(blocks))):
            if (wanted := getattr(config, name)) != there:
                raise SchemaMismatch(
                    f"{where} holds another shape of model: {name} is {there} there, and {wanted} in the "
                    "run's config. Restore the file that was changed."
                )
        storages = {each.untyped_storage().data_ptr(): each.untyped_storage() for each in stored.values()}
        if sum(each.nbytes for each in stored.values()) > sum(each.nbytes() for each in storages.values()):
            raise StoreError(f"checkpoint {where} cannot be read: tensors of its model share their numbers.")


def load_weights(policy: Policy, state: dict[str, Any], where: str) -> None:
    """Load the weights of a checkpoint into a policy.

    Raises:
        SchemaMismatch: when they belong to another vocabulary or another shape of the model.
        StoreError: when they are no weights.
    """
    with explain_damage(where):
        if state["vocab_hash"] != policy.renderer.vocab_hash:
            raise SchemaMismatch(
                f"{where} belongs to vocabulary {state['vocab_hash']}, this one is "
                f"{policy.renderer.vocab_hash}: its token ids mean other words here. "
                "Train anew, or use the version that wrote it."
            )
        parameters = dict(policy.model.named_parameters())
        stored = state["model"]
        for name, tensor in stored.items():
            if name not in parameters or parameters[name].shape != tensor.shape:
                raise SchemaMismatch(
                    f"{where} holds another shape of model: {name} is {tuple(tensor.shape)} there."
                )
        with torch.no_grad():
            for name, tensor in stored.items():
                parameters[name].copy_(tensor)
