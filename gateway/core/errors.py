"""Every error that crosses a boundary of the gateway, in one tree.

GatewayError
├── RequestError            the caller's to mend; edge/problems.py maps each to its HTTP status
│   ├── BadRequest          400  malformed, or a field that is unknown or out of range
│   ├── Unauthorized        401  no key, or a wrong one
│   ├── Forbidden           403  a key that may not do this
│   ├── NotFound            404  no such run, call, agent or route
│   ├── WrongState          409  the run is not in a state that allows it
│   ├── TooLarge            413  more bytes than are read
│   ├── CannotRun           422  valid JSON that cannot run (unknown agent, a model without a price)
│   ├── Busy                429  more runs, or watchers of runs, than there is room for
│   └── Unavailable         503  store down, or shutting down
├── ToolFailed              what a tool tells the model; never the client's fault
└── ProviderError           the model's endpoint
    ├── ProviderRefused     400/401/403/404…: asking again cannot help
    └── ProviderUnavailable 429/5xx/connection/truncated, and the retries are used up
"""

from __future__ import annotations


class GatewayError(Exception):
    """The root. `str(error)` is one sentence that is fit for a person to read."""


class RequestError(GatewayError):
    """A request that cannot be carried out. `param` names the field, `code` is for programs."""

    code = "bad_request"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.param = param
        self.code = code or type(self).code
        self.retry_after_seconds = retry_after_seconds


class BadRequest(RequestError):
    code = "bad_request"


class Unauthorized(RequestError):
    code = "unauthorized"


class Forbidden(RequestError):
    code = "forbidden"


class NotFound(RequestError):
    code = "not_found"


class WrongState(RequestError):
    code = "wrong_state"


class TooLarge(RequestError):
    code = "too_large"


class CannotRun(RequestError):
    code = "cannot_run"


class Busy(RequestError):
    code = "busy"


class Unavailable(RequestError):
    code = "unavailable"


class ToolFailed(GatewayError):
    """A tool that did not succeed. The message is what the model reads, after `Error: `.

    `permanent` says that no other wording of the same call can succeed (access denied, a path outside the workspace).
    """

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


class ProviderError(GatewayError):
    """The model's endpoint gave no usable reply.

    `status` is its HTTP status, if it gave one. `lost` says that a request was accepted and its reply never arrived
    whole, so that it may have been billed.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        lost: bool = False,
        retry_after_seconds: float | None = None,
        attempts: int = 1,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.lost = lost
        self.retry_after_seconds = retry_after_seconds
        self.attempts = attempts


class ProviderRefused(ProviderError):
    """Asking again cannot help: the key is wrong, the model unknown, the request invalid."""


class ProviderUnavailable(ProviderError):
    """Asking again later may help."""
