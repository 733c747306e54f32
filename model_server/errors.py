"""What can go wrong, as classes.

ModelServerError        one clear sentence, made to be shown to a person
├── Refused             a request that is answered with an error of OpenAI's shape
├── FetchFailed         weights could not be brought here
├── LoadFailed          weights could not be loaded: wrong file, too little memory, no llama-cpp-python
└── DecodeFailed        one reply could not be computed; the others go on
"""

from msgspec import Struct


class Problem(Struct, frozen=True):
    """The inside of an error's body, in OpenAI's shape."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(Struct, frozen=True):
    error: Problem


class ModelServerError(Exception):
    """Its text is a whole sentence, and says what to do where something can be done."""


class Refused(ModelServerError):
    """A request that is answered with an error. `retry_seconds` becomes a Retry-After header."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        kind: str = "invalid_request_error",
        retry_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.problem = Problem(message, kind, param, code)
        self.retry_seconds = retry_seconds


class FetchFailed(ModelServerError):
    pass


class LoadFailed(ModelServerError):
    pass


class DecodeFailed(ModelServerError):
    pass
