"""Every plan that a test makes is verified."""

import pytest

from odyssey.compiler import pipeline
from odyssey.compiler.schedule.verify import verify


@pytest.fixture(autouse=True)
def every_plan_is_sound(monkeypatch):
    """Verify plans as they are made; what is wrong fails the test, whoever catches it there."""
    plan, wrong = pipeline.plan, []

    def verified(*given):
        made = plan(*given)
        try:
            verify(made)
        except AssertionError as error:
            wrong.append(str(error))
        return made

    monkeypatch.setattr(pipeline, "plan", verified)
    yield
    assert not wrong
