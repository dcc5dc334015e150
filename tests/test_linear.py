"""Linear layers of 16-bit models on a CPU: products in float32, rounded once; float32 models untouched."""

import copy

import pytest
import torch

from rlcheck import lm, models


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 30])
def test_an_output_is_the_exact_product_rounded_once(dtype, rows):
    torch.manual_seed(0)
    exact = torch.nn.Linear(128, 64).to(dtype)
    inputs = torch.randn(rows, 128).to(dtype)
    layer = copy.deepcopy(torch.nn.Sequential(exact))
    lm.multiply_in_float32(layer)
    product = exact.weight.double() @ inputs.double()[..., None]
    reference = product[..., 0] + exact.bias.double()
    spacing = torch.finfo(dtype).eps * reference.abs().clamp(min=torch.finfo(dtype).tiny)
    assert ((layer(inputs).double() - reference).abs() <= 0.51 * spacing + 1e-6).all()
    assert layer(inputs).dtype == dtype


def test_a_float32_model_computes_the_same_bits_and_keeps_its_gradients():
    plain = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU())
    other = copy.deepcopy(plain)
    lm.multiply_in_float32(other)
    inputs = torch.randn(5, 16)
    for model in (plain, other):
        model(inputs).sum().backward()
    assert torch.equal(plain(inputs), other(inputs))
    assert torch.equal(plain[0].weight.grad, other[0].weight.grad)


def test_models_loaded_on_a_cpu_multiply_so_and_a_copy_does_too():
    first, second = models.load_pair("embedded", ("bfloat16", "float32"))
    assert isinstance(first.lm_head, lm.linear.Float32Product)
    assert isinstance(copy.deepcopy(second).lm_head, lm.linear.Float32Product)
