"""The python tool: right answers, clear failures, and no way out of its sandboxes.

The bubblewrap tests run where bwrap isolates; elsewhere the tool must refuse to start, which is tested everywhere.
"""

import asyncio
import shutil
import socket
from pathlib import Path

import pytest

from agentr1_core.errors import ConfigError, PluginError
from agentr1_core.testing.tool_kit import ToolKit
from agentr1_core.tool import ToolContext, ToolOutcome, call_tool
from agentr1_tools.python.tool import PythonTool

#: Tries every folder down to the third level.
WRITE_ANYWHERE = """
import os
found = []
for folder, below, _ in os.walk("/"):
    if folder.count("/") > 2:
        below.clear()
    if not folder.startswith(("/proc", "/tmp", "/dev/shm")):
        try:
            open(folder + "/x", "w")
            found.append(folder)
        except OSError:
            pass
found
"""


def can_isolate():
    async def probe():
        tool = PythonTool(sandbox="bubblewrap")
        try:
            await tool.start()
        except PluginError:
            return False
        await tool.close()
        return True

    return asyncio.run(probe())


ISOLATES = can_isolate()
BOTH = [
    "monty",
    pytest.param("bubblewrap", marks=pytest.mark.skipif(not ISOLATES, reason="bubblewrap does not isolate here")),
]


async def _run_all(codes, settings):
    tool = PythonTool(**settings)
    await tool.start()
    try:
        calls = (call_tool({"python": tool}, "python", {"code": code}, ToolContext()) for code in codes)
        return await asyncio.gather(*calls)
    finally:
        await tool.close()


def python(*codes, **settings):
    """The results of programmes run at once in one tool."""
    return asyncio.run(asyncio.wait_for(_run_all(codes, settings), 60))


@pytest.mark.parametrize("sandbox", BOTH)
def test_printed_text_and_the_last_value(sandbox):
    results = python("print('hi')\n6 * 7", "x = 3", "import math\nprint(math.comb(10, 3))", sandbox=sandbox)
    assert [result.response.text for result in results] == ["hi\n42", "The programme printed nothing.", "120\n"]


@pytest.mark.parametrize("sandbox", BOTH)
def test_failures_are_told_with_what_was_printed_before(sandbox):
    (division, syntax) = python("print('before')\n1 / 0", "x = (", sandbox=sandbox)
    assert division.outcome is syntax.outcome is ToolOutcome.FAILED
    assert "before" in division.response.text
    assert "ZeroDivisionError: division by zero" in division.response.text


@pytest.mark.parametrize("sandbox", BOTH)
def test_no_call_sees_what_another_left(sandbox):
    async def one_after_the_other():
        tool = PythonTool(sandbox=sandbox)
        await tool.start()
        try:
            await tool.execute({"code": "secret = 1"}, ToolContext())
            return await call_tool({"python": tool}, "python", {"code": "secret"}, ToolContext())
        finally:
            await tool.close()

    assert "NameError" in asyncio.run(one_after_the_other()).response.text


@pytest.mark.parametrize("sandbox", BOTH)
@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("while True: pass", "ran longer than 1 seconds"),
        ("while True: print('x' * 1000)", "printed more than 10000 bytes"),
        ("x = [0] * 10**9", "MemoryError"),
        ("def f(n): return f(n + 1)\nf(0)", "RecursionError"),
        ("open('/etc/passwd').read()", "Error"),
        ("import subprocess\nsubprocess.run(['touch', '/usr/x'], check=True)", "Error"),
    ],
)
def test_what_would_harm_the_host_is_stopped(sandbox, code, says):
    (result,) = python(code, sandbox=sandbox, time_s=1.0, output_bytes=10_000)
    assert result.outcome is ToolOutcome.FAILED
    assert says in result.response.text
    assert len(result.response.text) < 12_000


@pytest.mark.parametrize("sandbox", BOTH)
def test_a_file_of_the_host_cannot_be_read_or_written(sandbox, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("hunter2")
    secret.chmod(0o666)
    read, write = python(f"open({str(secret)!r}).read()", f"open({str(secret)!r}, 'w').write('x')", sandbox=sandbox)
    assert read.outcome is write.outcome is ToolOutcome.FAILED
    assert "hunter2" not in read.response.text
    assert secret.read_text() == "hunter2"


@pytest.mark.parametrize("sandbox", BOTH)
def test_a_server_on_the_host_cannot_be_reached(sandbox):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (result,) = python(f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 2)", sandbox=sandbox)
        server.settimeout(0.01)
        with pytest.raises(TimeoutError):
            server.accept()
    assert result.outcome is ToolOutcome.FAILED


@pytest.mark.parametrize("sandbox", BOTH)
def test_the_environment_of_the_host_is_not_there(sandbox, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "hunter2")
    (result,) = python("import os\nprint(dict(os.environ))", sandbox=sandbox)
    assert "hunter2" not in result.response.text


@pytest.mark.parametrize("sandbox", BOTH)
def test_a_cancelled_call_leaves_the_tool_usable(sandbox):
    async def cancel_then_use():
        tool = PythonTool(sandbox=sandbox, time_s=1.0)
        await tool.start()
        try:
            stuck = asyncio.create_task(tool.execute({"code": "while True: pass"}, ToolContext()))
            await asyncio.sleep(0.2)
            stuck.cancel()
            await asyncio.wait({stuck}, timeout=10)
            assert stuck.cancelled()
            return await tool.execute({"code": "1 + 1"}, ToolContext())
        finally:
            await tool.close()

    assert asyncio.run(cancel_then_use()).text == "2"


@pytest.mark.skipif(not ISOLATES, reason="bubblewrap does not isolate here")
class TestBubblewrap:
    def bubblewrap(self, *codes, **settings):
        return python(*codes, sandbox="bubblewrap", **settings)

    def test_forks_are_few_and_die_with_the_call(self):
        count = "import os\nfor i in range(100):\n    if os.fork() == 0:\n        import time; time.sleep(60)"
        (result,) = self.bubblewrap(count, processes=8)
        assert "Resource temporarily unavailable" in result.response.text
        assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"<programme>" in read_bytes(path)]

    def test_code_is_nobody_and_cannot_become_anybody(self):
        code = "import os\nprint(os.getresuid())\nos.setuid(0)"
        (result,) = self.bubblewrap(code)
        assert "(65534, 65534, 65534)" in result.response.text
        assert "PermissionError" in result.response.text

    def test_only_scratch_folders_can_be_written_and_they_are_small(self):
        (small,) = self.bubblewrap("open('/tmp/a', 'w').write('x' * 1000)")
        assert small.response.text == "1000"
        fill = "[open('{}/' + str(i), 'wb').write(b'x' * 2**20) for i in range(200)]"
        large = self.bubblewrap(fill.format("/tmp"), fill.format("/dev/shm"))
        assert ["No space left" in result.response.text for result in large] == [True, True]
        (anywhere,) = self.bubblewrap(WRITE_ANYWHERE, time_s=30)
        assert anywhere.response.text == "[]"

    def test_limits_cannot_be_raised(self):
        (result,) = self.bubblewrap("import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))")
        assert "not allowed to raise" in result.response.text

    def test_no_process_of_the_host_is_seen(self):
        (result,) = self.bubblewrap("import os\nprint(sum(name.isdigit() for name in os.listdir('/proc')) < 5)")
        assert result.response.text == "True\n"


def read_bytes(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_without_bubblewrap_the_run_does_not_start(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(PluginError, match="needs Linux and the program `bwrap`"):
        asyncio.run(PythonTool(sandbox="bubblewrap").start())


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ('echo "bwrap: No permissions to create new namespace" >&2; exit 1', "No permissions to create new namespace"),
        ('shift $(($# - 8)); exec python3 -I -c "$4" 5 4000000000 100 1000000000', "code would"),
    ],
    ids=["namespaces are forbidden", "it isolates nothing"],
)
def test_a_bubblewrap_that_does_not_isolate_is_refused(monkeypatch, tmp_path, script, says):
    fake = tmp_path / "bwrap"
    fake.write_text(f"#!/bin/bash\nPATH=/usr/bin:/bin\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(fake))
    with pytest.raises(PluginError, match="does not isolate here") as refused:
        asyncio.run(PythonTool(sandbox="bubblewrap").start())
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sandbox": "none"}, "Choose one of: monty, bubblewrap"),
        ({"time_s": 0}, "`time_s`"),
        ({"workers": 0}, "`workers`"),
        ({"interpreter": "/usr/bin/python3"}, "mean nothing to the sandbox 'monty'"),
    ],
)
def test_wrong_settings_are_named(settings, says):
    with pytest.raises(ConfigError) as refused:
        PythonTool(**settings)
    assert says in str(refused.value)


class TestPythonKeepsTheContract(ToolKit):
    def make_tool(self):
        return PythonTool()

    def good_calls(self):
        return [{"code": "1 + 1"}, {"code": ""}]


@pytest.mark.skipif(not ISOLATES, reason="bubblewrap does not isolate here")
class TestPythonInBubblewrapKeepsTheContract(ToolKit):
    def make_tool(self):
        return PythonTool(sandbox="bubblewrap")

    def good_calls(self):
        return [{"code": "1 + 1"}, {"code": ""}]
