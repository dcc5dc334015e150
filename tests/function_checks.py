"""The checks of a function, run directly: the names of the numbers beyond their thresholds."""

import inspect

import torch
from rlcheck.checks import (
    check_advantage,
    check_correction_bias_variance,
    check_correction_properties,
    check_policy_loss,
)

from rlcheck import corrections
from rlcheck.keys import Suite
from rlcheck.measure import Recorder
from rlcheck.settings import Settings
from rlcheck.thresholds import Thresholds

MODULES = {
    "rlcheck_correction": (check_correction_properties, check_correction_bias_variance),
    "rlcheck_policy_loss": (check_policy_loss,),
    "rlcheck_advantage": (check_advantage,),
}


def beyond(fixture, function, declared=None, correction=None):
    """Names of the numbers that fail when ``function`` overrides ``fixture``, and of exceptions."""
    return set().union(*_by_check(fixture, function, declared, correction))


def fails(number, fixture, function, declared=None, correction=None):
    """Whether that number is among them."""
    return any(number in found for found in _by_check(fixture, function, declared, correction))


def _by_check(fixture, function, declared, correction):
    overrides = {fixture} if correction is None else {fixture, "rlcheck_correction"}
    parts = {
        "rlcheck_correction": correction or corrections.from_name("tis"),
        "rlcheck_declarations": declared or {},
        "rlcheck_suite": Suite("s", frozenset(overrides)),
        "rlcheck_settings": Settings(),
        fixture: function,
    }
    for module in MODULES[fixture]:
        for name, check in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("check_") and check.__module__ == module.__name__:
                yield _failing(check, parts)


def _failing(check, parts):
    recorder = Recorder(Thresholds())
    names = [name for name in inspect.signature(check).parameters if name != "rlcheck_measure"]
    try:
        check(**{name: parts[name] for name in names}, rlcheck_measure=recorder)
    except Exception as error:
        return {type(error).__name__}
    assert not recorder.errors
    return {measurement.name.split(".")[1] for measurement in recorder.having("fail")}


def log_ratio(old_logprobs, engine_logprobs, mask):
    """d (B, T), 0 outside the mask, -50 for what the trainer calls impossible."""
    zero = torch.zeros((), dtype=old_logprobs.dtype)
    difference = torch.where(mask.bool(), old_logprobs, zero) - torch.where(mask.bool(), engine_logprobs, zero)
    return torch.nan_to_num(difference, neginf=-50).detach()


def ratio(logprobs, old_logprobs, mask):
    """r (B, T), 1 outside the mask."""
    zero = torch.zeros((), dtype=logprobs.dtype)
    return torch.exp(torch.where(mask.bool(), logprobs, zero) - torch.where(mask.bool(), old_logprobs, zero))


def token_mean(token_losses, mask, denominator=None):
    """Mean over the mask, or over the given count."""
    total = torch.where(mask.bool(), token_losses, torch.zeros((), dtype=token_losses.dtype)).sum()
    return total / (mask.sum().clamp(min=1) if denominator is None else denominator)
