"""What this package offers to agentr1."""

from agentr1_core.plugins import hookimpl

agentr1_api_version = 1


@hookimpl
def agentr1_tools():
    """The tools by name."""
    return {
        "weather": "acme_weather.tools:Weather",
        "to_fahrenheit": "acme_weather.tools:to_fahrenheit",
    }
