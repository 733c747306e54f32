"""What each client can do, declared once: the suite holds the clients to it, and the docs' table is made of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Literal

from msgspec import Struct

HERE = Path(__file__).parent
API = Literal["chat", "responses"]

ABILITIES = {
    "answer": "a plain answer",
    "stream": "a stream",
    "server_tool": "a server-side tool",
    "client_tool": "a client-side tool",
    "again": "a second question",
    "approval": "an approval",
    "budget": "a budget stop",
    "failure": "a failure",
    "cancel": "a cancel",
}


class Stop(Struct, frozen=True):
    """How a client tells of a run that stopped: `where` says `word`, or it raises that; without a word only the text
    tells."""

    word: str | None = None
    where: str | None = None

    @property
    def raised(self) -> bool:
        return self.word is not None and self.where is None


class Way(Struct, frozen=True, kw_only=True):
    """One client through one of the APIs. `streamed` is how it tells of a stop in a stream, where that is another way.
    `run_id` is where it lets one read which run it was. `notes` say, an ability, what it needs besides a base URL and
    headers; `cannot` says why it has none of it. Without a `stop` it has none of all."""

    stop: Stop | None
    streamed: Stop | None = None
    run_id: str | None
    notes: dict[str, str] = {}
    cannot: dict[str, str] = {}


class Client(Struct, frozen=True, kw_only=True):
    """`headers` is where it takes the headers that it is to send."""

    name: str
    package: str
    driver: str
    headers: str
    ways: dict[API, Way]

    @property
    def version(self) -> str:
        """The one that is tested, by the files that pin it."""
        if self.driver.endswith(".mjs"):
            return json.loads((HERE / "package.json").read_text())["dependencies"][self.package]
        pins = (HERE / "requirements.txt").read_text()
        pinned = re.search(rf"^{re.escape(self.package)}(?:\[\w+\])?==(\S+)$", pins, re.MULTILINE)
        assert pinned is not None, f"{self.package} is not pinned"
        return pinned[1]


HELPER = (
    "its helper `stream()` raises `LengthFinishReasonError` where a run stopped, and leaves out which run it was; "
    "`create(stream=True)` has both"
)
PIECES = "in a stream the text alone says so"
TEXT_ONLY = "it has no field for how an answer ended, so that the text alone says so"
RAISED = "the exception says that the answer is incomplete, and neither why nor which run it is: `GET /v1/runs` does"
WHOLE = (
    "with `litellm.register_model` and `supports_native_streaming`: of a model that it does not know it asks for the "
    "whole answer, and cuts that up"
)
CODE = (
    "its agents write code and send back what came of it as text, by which no run is known: with "
    "`X-Gateway-Conversation` and a model of the provider's all their requests are one run, which stays stopped "
    "however often they ask, and with an agent's name each is a run of its own"
)
CHAT_ONLY = "it speaks chat completions only"
LEFT_OPEN = "by `model.client.close()`: closing the pieces alone leaves the connection open until garbage is collected"

CLIENTS = (
    Client(
        name="openai (Python)",
        package="openai",
        driver="drive_openai.py",
        headers="`default_headers`, `extra_headers`",
        ways={
            "chat": Way(
                stop=Stop("length", "finish_reason"),
                run_id="`model_extra`",
                notes={"stream": HELPER},
            ),
            "responses": Way(stop=Stop("incomplete", "status"), run_id="`model_extra`"),
        },
    ),
    Client(
        name="openai (Node)",
        package="openai",
        driver="drive_openai.mjs",
        headers="`defaultHeaders`, `headers`",
        ways={
            "chat": Way(stop=Stop("length", "finish_reason"), run_id="`gateway`"),
            "responses": Way(stop=Stop("incomplete", "status"), run_id="`gateway`"),
        },
    ),
    Client(
        name="openai-agents",
        package="openai-agents",
        driver="drive_agents.py",
        headers="`ModelSettings(extra_headers=…)`",
        ways={
            "chat": Way(stop=Stop(), run_id=None, notes={"approval": TEXT_ONLY, "budget": TEXT_ONLY}),
            "responses": Way(
                stop=Stop("ModelBehaviorError"),
                run_id="`raw_responses[-1].response_id`",
                notes={"approval": RAISED, "budget": RAISED},
            ),
        },
    ),
    Client(
        name="pydantic-ai",
        package="pydantic-ai-slim",
        driver="drive_pydantic.py",
        headers='`model_settings={"extra_headers": …}`',
        ways={
            "chat": Way(stop=Stop("length", "finish_reason"), run_id="`provider_response_id`"),
            "responses": Way(stop=Stop("length", "finish_reason"), run_id="`provider_response_id`"),
        },
    ),
    Client(
        name="langchain-openai",
        package="langchain-openai",
        driver="drive_langchain.py",
        headers="`default_headers`",
        ways={
            "chat": Way(
                stop=Stop("length", "finish_reason"),
                run_id="`include_response_headers=True`",
                notes={"stream": "usage with `stream_usage=True`"},
            ),
            "responses": Way(stop=Stop("incomplete", "status"), run_id="`include_response_headers=True`"),
        },
    ),
    Client(
        name="litellm",
        package="litellm",
        driver="drive_litellm.py",
        headers="`extra_headers`",
        ways={
            "chat": Way(stop=Stop("length", "finish_reason"), run_id="`id`"),
            "responses": Way(stop=Stop("incomplete", "status"), run_id=None, notes={"stream": WHOLE, "cancel": WHOLE}),
        },
    ),
    Client(
        name="smolagents",
        package="smolagents",
        driver="drive_smolagents.py",
        headers='`client_kwargs={"default_headers": …}`',
        ways={
            "chat": Way(
                stop=Stop("length", "finish_reason"),
                streamed=Stop(),
                run_id="`raw.model_extra`",
                notes={"client_tool": CODE, "budget": PIECES, "cancel": LEFT_OPEN},
            ),
            "responses": Way(stop=None, run_id=None, cannot=dict.fromkeys(ABILITIES, CHAT_ONLY)),
        },
    ),
    Client(
        name="ai",
        package="ai",
        driver="drive_ai.mjs",
        headers="`createOpenAI({ headers })`, `headers`",
        ways={
            "chat": Way(stop=Stop("length", "finishReason"), run_id="`response.headers`"),
            "responses": Way(stop=Stop("length", "finishReason"), run_id="`response.headers`"),
        },
    ),
)
