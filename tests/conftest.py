"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# How long one example takes says how busy the machine is, nothing about what is tested.
settings.register_profile("rocketmq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rocketmq")
