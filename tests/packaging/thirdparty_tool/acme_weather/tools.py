"""Two tools, one written as a class and one as a function."""

from agentr1_core.tool import BaseTool, ToolError, tool

CELSIUS = {"Aberdeen": 9, "Cairo": 31}


class Weather(BaseTool):
    """Knows today's temperature in two cities."""

    name = "weather"
    description = "Today's temperature of a city, in degrees Celsius."
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}  # noqa: RUF012

    async def execute(self, args, ctx):
        if args["city"] not in CELSIUS:
            raise ToolError(f"No weather for {args['city']}; known: {', '.join(CELSIUS)}.")
        return str(CELSIUS[args["city"]])


@tool
def to_fahrenheit(celsius: float) -> float:
    """Convert degrees Celsius to Fahrenheit.

    Args:
        celsius: The temperature to convert.
    """
    return celsius * 9 / 5 + 32
