"""What all tests share: how Hypothesis runs. Fixtures live beside the tests that use them."""

from __future__ import annotations

import os

from hypothesis import settings

# A busy machine is no fault of the code, so no deadline. HYPOTHESIS_PROFILE=thorough looks longer.
settings.register_profile("default", deadline=None)
settings.register_profile("thorough", deadline=None, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
