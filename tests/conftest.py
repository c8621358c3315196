"""What holds for all tests."""

import os

from hypothesis import HealthCheck, settings

# How long one example takes says how busy the machine is, nothing about what is tested. Where CI is set the examples are always the same,
# as with the profile that hypothesis itself chooses there: a run that decides about a change should not decide by chance.
settings.register_profile("rocketmq", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ)
settings.load_profile("rocketmq")
