"""`HYPOTHESIS_PROFILE=deep` looks for longer; the default keeps the suite quick."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("quick", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("deep", settings.get_profile("quick"), max_examples=1000, stateful_step_count=80)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
