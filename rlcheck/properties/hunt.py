"""Looking for inputs on which a black box breaks a property, and reporting the smallest one as code."""

from __future__ import annotations

import functools
import math
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, configuration
from hypothesis.errors import NoSuchExample
from hypothesis.strategies import SearchStrategy

from rlcheck.strategies import Pasteable

Subject = Callable[..., Any]
T = TypeVar("T", bound=Pasteable)


@dataclass(frozen=True)
class Property:
    """A claim about a function, and how far one input is from it.

    ``deviation(subject, batch)`` is 0 where the claim holds to the last bit, and counts as held up to
    ``tolerance``; NaN counts as infinitely far. A subject that raises is infinitely far from the one property
    that ``counts_errors``; for the others such an input says nothing.
    """

    name: str
    claim: str
    deviation: Callable[[Subject, Any], float]
    tolerance: float = 0.0
    counts_errors: bool = False

    def measure(self, subject: Subject, batch: Any) -> tuple[float, str]:
        """The deviation on one input, and the error if the subject raised one."""
        try:
            deviation = self.deviation(subject, batch)
        except Exception as error:  # whatever a user's function raises is a finding, not our crash
            return (math.inf if self.counts_errors else 0.0), f"{type(error).__name__}: {error}"
        return (math.inf if math.isnan(deviation) else deviation), ""

    def broken(self, subject: Subject, batch: Any) -> bool:
        """Whether the input breaks the claim."""
        return self.measure(subject, batch)[0] > self.tolerance


@dataclass(frozen=True)
class Finding:
    """What a hunt measured about one property.

    ``worst`` is the largest deviation, ``broken`` the number of the ``examples`` beyond the tolerance,
    ``counterexample`` the smallest input found that breaks the claim, as code; ``error`` what it raised.
    """

    property: Property
    worst: float
    broken: int
    examples: int
    counterexample: str | None = None
    error: str = ""


def hunt(
    subject: Subject,
    properties: Sequence[Property],
    inputs: SearchStrategy[T],
    *,
    seed: int = 0,
    examples: int = 100,
    shrinking: bool = True,
) -> list[Finding]:
    """Measure each property on ``examples`` generated inputs, and shrink one that breaks it (a second each).

    The inputs follow from the seed alone, and are made once for all subjects. No Hypothesis profile is
    changed and nothing is written to the working directory.
    """
    batches = generate(inputs, seed, examples)
    found = [_survey(subject, one, batches) for one in properties]
    return [_shrunk(subject, one, inputs, seed) if shrinking and one.broken else one for one in found]


def _survey(subject: Subject, one: Property, batches: Sequence[Pasteable]) -> Finding:
    deviations = [one.measure(subject, batch)[0] for batch in batches]
    broken = [batch for batch, deviation in zip(batches, deviations, strict=True) if deviation > one.tolerance]
    finding = Finding(one, max(deviations), len(broken), len(batches))
    return _with_example(finding, subject, broken[0]) if broken else finding


def _shrunk(subject: Subject, finding: Finding, inputs: SearchStrategy[T], seed: int) -> Finding:
    """The finding with the smallest input in place of the first; as it was if Hypothesis meets none again."""
    broken = functools.partial(finding.property.broken, subject)
    smallest = shrink(broken, inputs, seed, finding.examples)
    return finding if smallest is None else _with_example(finding, subject, reduce(broken, smallest))


def reduce(broken: Callable[[T], bool], batch: T) -> T:
    """The batch without the rows, columns and attempts that the break does not need."""
    for candidate in batch.smaller():
        if broken(candidate):
            return reduce(broken, candidate)
    return batch


def _with_example(finding: Finding, subject: Subject, batch: Pasteable) -> Finding:
    deviation, error = finding.property.measure(subject, batch)
    return replace(finding, counterexample=_paste(finding.property, batch, deviation), error=error)


@functools.lru_cache(maxsize=32)
def generate(inputs: SearchStrategy[T], seed: int, examples: int) -> list[T]:
    """The first ``examples`` inputs of a strategy under a seed."""
    found: list[T] = []

    @hypothesis.seed(seed)
    @_settings(examples)
    @hypothesis.given(inputs)
    def collect(batch: T) -> None:
        found.append(batch)

    with _storage_elsewhere():
        collect()
    return found


def shrink(condition: Callable[[T], bool], inputs: SearchStrategy[T], seed: int, examples: int) -> T | None:
    """The smallest input for which the condition holds, as far as Hypothesis finds one."""
    with _storage_elsewhere():
        try:
            return hypothesis.find(inputs, condition, settings=_settings(examples), random=random.Random(seed))
        except NoSuchExample:
            return None


def _settings(examples: int) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


@contextmanager
def _storage_elsewhere() -> Iterator[None]:
    """Hypothesis keeps caches in ``.hypothesis`` of the working directory even without a database."""
    before = getattr(configuration, "__hypothesis_home_directory", None)
    with tempfile.TemporaryDirectory() as folder:
        configuration.set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            configuration.set_hypothesis_home_dir(before)


def _paste(one: Property, batch: Pasteable, deviation: float) -> str:
    """Code that measures the property on the batch again."""
    home, function = one.deviation.__module__, one.deviation.__qualname__
    return (
        "import math\n\nimport torch\n\n"
        f"from {home} import {function}\nfrom rlcheck.strategies import {type(batch).__name__}\n\n"
        f"batch = {batch!r}\n"
        f"{function}(YOUR_FUNCTION, batch)  # {deviation:.6g}; at most {one.tolerance:g} where {one.claim}\n"
    )
