import pytest

from rlcheck.errors import RlcheckError
from rlcheck.simulation.config import PipelineConfig
from rlcheck.simulation.weight_sync import parameter_count, sync_sensitivity, sync_times, weight_bytes

TINY = {
    "model_type": "qwen3",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "vocab_size": 32,
}


def by_hand(tied):
    attention = 8 * 8 + 2 * (8 * 4) + 8 * 8 + 2 * 4  # q, k and v, o, two head norms
    layer = attention + 3 * 8 * 16 + 2 * 8
    return 32 * 8 * (1 if tied else 2) + 2 * layer + 8


@pytest.mark.parametrize("tied", [True, False])
def test_parameters_of_a_config(tied):
    assert parameter_count(TINY | {"tie_word_embeddings": tied}) == by_hand(tied)


def test_parameters_of_a_number():
    assert parameter_count(32.8e9) == 32_800_000_000


@pytest.mark.parametrize("model", ["/nowhere/at/all", {"model_type": "no-such-model"}])
def test_an_unknown_model_is_named(model):
    with pytest.raises(RlcheckError, match="parameter count: no causal language model from"):
        parameter_count(model)


def test_a_32b_model_takes_what_is_known_of_it():
    size = weight_bytes(32_800_000_000)
    assert size == pytest.approx(66e9, rel=0.01)
    seconds = {time.path: time.seconds for time in sync_times(size)}
    assert seconds["in-node link"] < 1
    assert 1 < seconds["cross-node network"] < 10
    assert 50 < seconds["checkpoint reload"] < 70
    assert sync_times(10.0, {"mine": 5.0}) == [("mine", 5.0, 2.0)]


def test_bytes_by_dtype():
    assert [weight_bytes(8, dtype) for dtype in ("float32", "torch.bfloat16", "float8", "int4")] == [32, 16, 8, 4]
    with pytest.raises(RlcheckError, match="unknown dtype 'bfloat'; did you mean bfloat16"):
        weight_bytes(8, "bfloat")


def test_a_slower_sync_costs_throughput():
    rows = sync_sensitivity(PipelineConfig(steps=5), [1.0, 10.0, 60.0], range(3))
    assert rows[0].change == 0.0
    assert rows[0].episodes_per_hour > rows[1].episodes_per_hour > rows[2].episodes_per_hour
    assert -0.2 < rows[2].change < -0.05
