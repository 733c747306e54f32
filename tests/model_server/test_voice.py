"""One reply, token by token: it goes on under the grammar of the tools, whatever was written before."""

from __future__ import annotations

import pytest

from model_server.jobs import Job, WhenCalling
from model_server.tool_calls import CallReader
from model_server.voice import Voice
from model_server.wire import FunctionSpec, Tool
from tests.model_server.fakes import CALL, FakeEngine, FakeGrammar

LIST = Tool("function", FunctionSpec("list_files"))


class NotingEngine(FakeEngine):
    """Notes the grammars that are asked for, and what they were told to accept."""

    def __init__(self) -> None:
        super().__init__()
        self.grammars: list[NotingGrammar] = []

    def grammar(self, text: str) -> FakeGrammar:
        self.grammars.append(NotingGrammar(text))
        return self.grammars[-1]


class NotingGrammar(FakeGrammar):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.accepted: list[int] = []

    def accept(self, token: int) -> None:
        self.accepted.append(token)


@pytest.mark.parametrize("before", [b"", b"\xff", b"\xff" * 10, "é€".encode(), b"\xe2\x82"])
def test_a_call_behind_any_bytes_goes_on_under_the_grammar_of_the_tools(before: bytes) -> None:
    engine = NotingEngine()
    constraint = WhenCalling(CallReader(frozenset({"list_files"})), (LIST,), parallel=True)
    voice = Voice(Job(id=1, prompt=(1,), tokens_max=100, constraint=constraint), engine)

    for token in (*before, CALL, *b'{"name'):
        assert not voice.take(token)

    (grammar,) = engine.grammars
    assert bytes(token for token in grammar.accepted if token != CALL).endswith(b'{"name')
    assert CALL in grammar.accepted
