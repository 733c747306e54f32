import numpy as np
import pytest

from model_server.jobs import Sampling
from model_server.sampling import Ids, NothingAllowed, choose

LOGITS = np.array([0.0, 3.0, 1.0, 2.0], np.float32)


class Only:
    """A grammar that allows some tokens, and counts what it is asked."""

    def __init__(self, *allowed: int) -> None:
        self._allowed = allowed
        self.asked = 0

    def allowed(self, ids: Ids) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        self.asked += len(ids)
        return np.isin(ids, self._allowed)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_greedy_takes_the_best_token() -> None:
    assert choose(LOGITS, Sampling(), generator()) == 1


def test_a_grammar_is_asked_about_one_token_when_the_best_one_is_allowed() -> None:
    grammar = Only(1)

    assert choose(LOGITS, Sampling(), generator(), grammar) == 1
    assert grammar.asked == 1


def test_greedy_takes_the_best_of_the_allowed_tokens() -> None:
    assert choose(LOGITS, Sampling(), generator(), Only(0, 2)) == 2


def test_a_token_far_down_is_found_when_no_better_one_is_allowed() -> None:
    logits = np.arange(10_000, dtype=np.float32)

    assert choose(logits, Sampling(), generator(), Only(3, 7)) == 7


def test_a_grammar_that_allows_nothing_is_an_error() -> None:
    with pytest.raises(NothingAllowed):
        choose(LOGITS, Sampling(), generator(), Only())


@pytest.mark.parametrize("grammar", [None, Only(0, 2, 3)])
def test_temperature_draws_as_often_as_the_probabilities_say(grammar: Only | None) -> None:
    allowed = range(4) if grammar is None else (0, 2, 3)
    weights = np.array([np.exp(LOGITS[token] / 0.8) if token in allowed else 0 for token in range(4)])
    random = generator()
    drawn = [choose(LOGITS, Sampling(temperature=0.8), random, grammar) for _ in range(4000)]

    assert np.allclose(np.bincount(drawn, minlength=4) / 4000, weights / weights.sum(), atol=0.03)


def test_top_p_leaves_out_the_tail() -> None:
    random = generator()

    assert {choose(LOGITS, Sampling(1.0, top_p=0.8), random) for _ in range(500)} == {1, 3}


def test_the_same_seed_draws_the_same() -> None:
    def draw() -> list[int]:
        random = generator(7)
        return [choose(LOGITS, Sampling(1.0), random) for _ in range(20)]

    assert draw() == draw()
