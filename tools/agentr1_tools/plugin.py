"""What this distribution offers to agentr1: its entry point names this module.

The tools are given as strings, so that listing plugins imports nothing else.
"""

from collections.abc import Mapping

from agentr1_core.plugins import hookimpl

agentr1_api_version = 1


@hookimpl
def agentr1_tools() -> Mapping[str, str]:
    """The tools by the names a run file uses."""
    return {
        "calculator": "agentr1_tools.calculator:Calculator",
        "check_answer": "agentr1_tools.check_answer:CheckAnswer",
        "mcp": "agentr1_tools.mcp.source:MCPServer",
        "python": "agentr1_tools.python.tool:PythonTool",
        "search": "agentr1_tools.search:Search",
        "search_http": "agentr1_tools.search_http:HTTPSearch",
    }


@hookimpl
def agentr1_rewards() -> Mapping[str, str]:
    """Rewards for short answers and for GSM8K, by the names a run file uses."""
    return {
        "gsm8k": "agentr1_tools.check_answer:gsm8k",
        "qa_em": "agentr1_tools.qa:qa_em",
        "qa_f1": "agentr1_tools.qa:qa_f1",
        "qa_hotpot_f1": "agentr1_tools.qa:qa_hotpot_f1",
        "qa_sub_em": "agentr1_tools.qa:qa_sub_em",
    }
