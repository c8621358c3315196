"""What a name server is not asked for: slaves that act as masters, controllers."""

from __future__ import annotations

import pytest

from rocketmq_sdk.broker_embedded.namesrv.config import NamesrvConfig
from rocketmq_sdk.errors import ConfigurationError


@pytest.mark.parametrize(
    "name", ["supportActingMaster", "notifyMinBrokerIdChanged", "enableControllerInNamesrv"]
)
def test_acting_masters_and_controllers_are_refused_by_name(name: str) -> None:
    config, warnings = NamesrvConfig().with_settings({name: "false"})
    assert config.export()[name] == "false"
    assert len(warnings) == 1
    with pytest.raises(ConfigurationError, match=f"{name}=true asks for"):
        NamesrvConfig().with_settings({name: "true"})
