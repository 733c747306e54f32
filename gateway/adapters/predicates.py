"""The operator's own stop rules: functions that look at a run and say in a sentence why it shall stop, or nothing.

Theirs is the only code that runs inside a decision, so whatever goes wrong in it stops the run in words: a rule that is
broken must neither let a run go on nor end the gateway's part in it.
"""

from __future__ import annotations

import inspect
import logging
from typing import Any

from gateway.adapters.dotted import CannotLoad, load
from gateway.core.run import Run
from gateway.core.stopping import Predicate

log = logging.getLogger(__name__)


def predicate_of(path: str) -> Predicate:
    """The rule at this path. Raises CannotLoad."""
    function = load(path)
    if inspect.iscoroutinefunction(function):
        raise CannotLoad(f"{path} is async: a stop rule is asked between two steps, so it must be a plain function.")

    def ask(run: Run) -> str | None:
        try:
            said = function(run)
        except Exception as error:
            log.exception("the stop rule %s failed", path)
            return f"it failed: {type(error).__name__}: {error}"
        return sentence_of(said)

    return ask


def sentence_of(said: Any) -> str | None:
    """Nothing means go on. `True` is taken for a stop without words: the safe reading of a mistake."""
    if said is None or said is False:
        return None
    if isinstance(said, str):
        return said
    return f"it returned {said!r} where a sentence or None was expected."
