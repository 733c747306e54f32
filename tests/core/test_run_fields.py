"""What a run fills in itself can be set nowhere else: the places that could let it in agree on what that is."""

from __future__ import annotations

import pytest

from gateway.adapters.providers.settings import ProviderSettings
from gateway.core.errors import BadRequest
from gateway.core.run import RUN_FIELDS
from gateway.edge.openai.asking import params_of
from gateway.service.agents import check_params

EACH = pytest.mark.parametrize("field", sorted(RUN_FIELDS))


@EACH
def test_an_operator_may_not_configure_it(field: str) -> None:
    with pytest.raises(ValueError, match=f"extra_body may not have {field}: the run says what they are"):
        ProviderSettings(base_url="http://localhost/v1", extra_body={field: None})


@EACH
def test_an_order_may_not_have_it(field: str) -> None:
    with pytest.raises(BadRequest, match=f"params.{field}: the run says what that is"):
        check_params({field: "x"})


@EACH
def test_it_is_no_parameter_of_a_chat_completion(field: str) -> None:
    assert params_of({field: "x", "seed": 7}) == {"seed": 7}
