"""Logits of a head in few bits: the values and gradients of float32, without a float32 copy."""

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gem.train.learn import output_head
from gem.train.learn.output_head import compute_logits

PLACES, WIDTH, VOCABULARY = 9, 32, 1000


def make(dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (PLACES, WIDTH), (VOCABULARY, WIDTH), (VOCABULARY,)
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


def simple(states, weight, bias):
    return torch.nn.functional.linear(states.float(), weight.float(), bias.float())


class LargestFloat32(TorchDispatchMode):
    """Keeps the size of the largest float32 tensor that an operation returned."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float32:
                self.elements = max(self.elements, leaf.untyped_storage().nbytes() // 4)
        return result


@pytest.mark.parametrize("trains", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("block", [1 << 25, 100 * WIDTH, 1])
def test_values_and_gradients_are_those_of_float32(block, dtype, trains, monkeypatch):
    monkeypatch.setattr(output_head, "BLOCK", block)
    made = make(dtype)
    for tensor, train in zip(made, trains, strict=False):
        tensor.requires_grad_(train)
    gradient = torch.randn(PLACES, VOCABULARY, generator=torch.Generator().manual_seed(1))
    wanted, found = simple(*made), compute_logits(*made)
    assert found.dtype == torch.float32
    assert torch.allclose(found, wanted, atol=1e-5)
    asked = [tensor for tensor in made if tensor.requires_grad]
    for one, other in zip(
        torch.autograd.grad(found, asked, gradient), torch.autograd.grad(wanted, asked, gradient), strict=True
    ):
        assert one.dtype == dtype
        apart = torch.finfo(dtype).eps * other.abs().max()  # one of the last bits
        assert (one - other).abs().max() <= apart + 1e-6


def test_no_float32_copy_of_the_weight_is_made(monkeypatch):
    monkeypatch.setattr(output_head, "BLOCK", 100 * WIDTH)
    largest = []
    for way in (compute_logits, simple):
        made = make(torch.bfloat16)
        with LargestFloat32() as seen:
            way(*made).sum().backward()
        largest.append(seen.elements)
    assert largest == [PLACES * VOCABULARY, WIDTH * VOCABULARY]
