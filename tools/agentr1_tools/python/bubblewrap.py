"""Code in full Python, isolated by bubblewrap: no network, no files but the interpreter's, few processes, no root.

An option of the ``python`` tool. The isolation is that of Linux namespaces and resource limits and shares the host's
kernel, so code of a determined attacker belongs in a virtual machine instead. ``start`` proves it on this host and
refuses otherwise; there is no way to run without it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from agentr1_core.errors import PluginError
from agentr1_tools.python.sandbox import Limits, Run, Sandbox

#: ``nobody``: who code runs as, also when agentr1 itself runs as root.
NOBODY = 65534
#: Megabytes of each of the two folders that can be written, ``/tmp`` and ``/dev/shm``; they are memory, and gone
#: after the call.
SCRATCH_MB = 64
#: Seconds the namespaces and the interpreter may take to start.
START_S = 10.0

#: What the launcher says on standard error once everything is set and the clock of the programme may run.
READY = b"\x06"

#: Runs inside: gives up root for good, sets the limits, then runs standard input as a programme and shows the value
#: of a last expression.
LAUNCHER = r"""
import ast, os, resource, sys
if os.getuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
seconds, memory, processes, scratch = (int(part) for part in sys.argv[1:5])
for name, limit in (("CPU", seconds), ("AS", memory), ("NPROC", processes), ("FSIZE", scratch), ("CORE", 0),
                    ("NOFILE", 64)):
    resource.setrlimit(getattr(resource, "RLIMIT_" + name), (limit, limit))
source = sys.stdin.read()
del sys.argv[1:]
import traceback
sys.stderr.write(chr(6))
sys.stderr.flush()
names = {"__name__": "__main__", "__builtins__": __builtins__}
try:
    tree = ast.parse(source, "<programme>")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<programme>", "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "<programme>", "eval"), names)
        if value is not None:
            print(repr(value), end="")
except SystemExit:
    raise
except BaseException as error:
    sys.stdout.flush()
    trace = error.__traceback__.tb_next if error.__traceback__ else None
    sys.stderr.write("".join(traceback.format_exception(type(error), error, trace)))
    sys.stderr.flush()
    sys.exit(1)
"""

#: What must hold inside before any code of a model runs; the file named in it lies on the host.
PROBE = """
import json, os, socket
print(json.dumps({{
    "uids": os.getresuid(),
    "nics": [name for _, name in socket.if_nameindex()],
    "files": [path for path in ({canary!r}, "/etc/passwd", "/etc/shadow") if os.path.exists(path)],
    "environment": sorted(set(os.environ) - {{"PATH", "HOME", "LANG", "OMP_NUM_THREADS", "PWD", "LC_CTYPE"}}),
    "processes": sum(name.isdigit() for name in os.listdir("/proc")),
}}))
"""


class BubblewrapSandbox(Sandbox):
    """One bubblewrap, with its own namespaces, for each call.

    Args:
        limits: What one call may use; memory counts for each process.
        workers: Programmes that run at the same time; more wait.
        processes: Processes and threads one programme may have.
        interpreter: The Python to run, with the packages installed for it; the one agentr1 runs on, without the
            packages of its virtual environment, when unset.
    """

    def __init__(
        self, limits: Limits, *, workers: int = 2, processes: int = 16, interpreter: str | None = None
    ) -> None:
        self.limits = limits
        self.processes = processes
        self.interpreter = interpreter or getattr(sys, "_base_executable", sys.executable)
        self._slots = asyncio.Semaphore(workers)
        self._command: list[str] | None = None

    async def start(self) -> None:
        if self._command is not None:
            return
        bwrap = shutil.which("bwrap")
        if not sys.platform.startswith("linux") or bwrap is None:
            raise PluginError(
                "The python tool's sandbox 'bubblewrap' needs Linux and the program `bwrap`, which is not here.",
                "Install the package bubblewrap of your distribution, or set `sandbox: monty`.",
            )
        folders = await self._interpreter_folders()
        command = _command(bwrap, self.interpreter, folders, self.limits, self.processes)
        with tempfile.NamedTemporaryFile() as canary:
            os.chmod(canary.name, 0o644)
            probe = await self._execute(command, PROBE.format(canary=canary.name))
        problem = probe.error or _problem_with(probe.output)
        if problem is not None:
            raise PluginError(
                f"The python tool's sandbox 'bubblewrap' does not isolate here: {problem.strip()}",
                "Allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone, or your container's "
                "security profile), or set `sandbox: monty`.",
            )
        self._command = command

    async def _interpreter_folders(self) -> list[Path]:
        ask = "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix]))"
        try:
            asked = await asyncio.create_subprocess_exec(
                self.interpreter, "-I", "-c", ask, stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
            )
            answer, _ = await asyncio.wait_for(asked.communicate(), 30)
            return sorted({Path(folder) for folder in json.loads(answer)})
        except (OSError, ValueError) as error:
            raise PluginError(
                f"The python tool's interpreter {self.interpreter} does not run: {error}",
                "Set `interpreter` to the path of a Python.",
            ) from error

    async def run(self, code: str) -> Run:
        if self._command is None:
            raise PluginError("The python tool was not started.", "Await start() before the first call.")
        async with self._slots:
            return await self._execute(self._command, code)

    async def _execute(self, command: list[str], code: str) -> Run:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd="/",
            env={},
            start_new_session=True,
        )
        try:
            return await self._follow(process, code)
        finally:
            # The first process of the namespace dies with bwrap, and every other one with it.
            if process.returncode is None:
                process.kill()
            # asyncio tells the end of a process only once its pipes were read to their end.
            for pipe in (process.stdout, process.stderr):
                while pipe is not None and await pipe.read(65536):
                    pass
            await process.wait()

    async def _follow(self, process: asyncio.subprocess.Process, code: str) -> Run:
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        if stdin is None or stdout is None or stderr is None:
            raise PluginError("bwrap was started without pipes.")
        try:
            async with asyncio.timeout(START_S):
                await _feed(stdin, code.encode("utf-8", "replace"))
                first = await stderr.read(1)
        except TimeoutError:
            return Run("", f"The sandbox did not start within {START_S:g} seconds.")
        if first != READY:
            return Run("", (first + await stderr.read(2000)).decode("utf-8", "replace") or "The sandbox did not start.")
        limit = self.limits.output_bytes
        try:
            async with asyncio.timeout(self.limits.time_s):
                reading = asyncio.create_task(_read(stderr, limit))
                try:
                    output, too_long = await _read(stdout, limit)
                    if too_long:
                        return Run(output, f"The programme printed more than {limit} bytes and was stopped.")
                    complaint, _ = await reading
                finally:
                    reading.cancel()
                status = await process.wait()
        except TimeoutError:
            return Run("", f"The programme ran longer than {self.limits.time_s:g} seconds and was stopped.")
        if status == 0:
            return Run(output + complaint)
        if status >= 128:
            complaint += f"The programme was stopped by signal {status - 128}: it used up its processor time or memory."
        return Run(output, complaint.strip() or f"The programme ended with exit status {status}.")

    async def close(self) -> None:
        self._command = None


def _command(bwrap: str, interpreter: str, folders: list[Path], limits: Limits, processes: int) -> list[str]:
    """All of it is read-only but an empty folder in memory; nothing of the environment comes along."""
    command = [bwrap, "--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox", "--cap-drop", "ALL"]
    command += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    if os.geteuid() == 0:
        # Mapping root to another number would leave it the owner of root's files and free of process limits: the
        # launcher becomes another user instead, which takes all of these away for good.
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-user", "--disable-userns", "--uid", str(NOBODY), "--gid", str(NOBODY)]
    for variable, value in (("PATH", "/usr/bin:/bin"), ("HOME", "/tmp"), ("LANG", "C.UTF-8"), ("OMP_NUM_THREADS", "1")):
        command += ["--setenv", variable, value]
    command += ["--ro-bind", "/usr", "/usr"]
    for name in ("lib", "lib64", "lib32", "bin", "sbin"):
        folder = Path("/", name)
        if folder.is_symlink():
            command += ["--symlink", os.readlink(folder), str(folder)]
        elif folder.is_dir():
            command += ["--ro-bind", str(folder), str(folder)]
    if Path("/etc/ld.so.cache").exists():
        command += ["--perms", "0755", "--dir", "/etc", "--ro-bind", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    for folder in folders:
        if not folder.is_relative_to("/usr"):
            # bwrap would make the folders above it as closed as they are on the host.
            for above in reversed(folder.parents[:-1]):
                command += ["--perms", "0755", "--dir", str(above)]
            command += ["--ro-bind", str(folder), str(folder)]
    command += ["--proc", "/proc", "--dev", "/dev"]
    for scratch in ("/tmp", "/dev/shm"):
        command += ["--perms", "1777", "--size", str(SCRATCH_MB * 2**20), "--tmpfs", scratch]
    command += ["--remount-ro", "/dev"]
    command += ["--remount-ro", "/", "--chdir", "/tmp", "--", interpreter, "-I", "-c", LAUNCHER]
    # The processor time is rounded up: a limit of whole seconds that backs up the wall clock outside.
    seconds = int(limits.time_s) + 1
    return [*command, *(str(part) for part in (seconds, limits.memory_mb * 2**20, processes, SCRATCH_MB * 2**20))]


def _problem_with(probe: str) -> str | None:
    """What the probe found that must not be; ``None`` when the sandbox is one."""
    try:
        found = json.loads(probe)
    except ValueError:
        return f"its probe answered {probe[:200]!r}."
    if set(found["uids"]) != {NOBODY}:
        return f"code would run as the users {found['uids']}."
    if set(found["nics"]) - {"lo"}:
        return f"code would see the network interfaces {found['nics']}."
    if found["files"]:
        return f"code would see files of the host: {', '.join(found['files'])}."
    if found["environment"]:
        return f"code would see the variables {', '.join(found['environment'])}."
    if found["processes"] > 4:
        return "code would see the processes of the host."
    return None


async def _feed(pipe: asyncio.StreamWriter, data: bytes) -> None:
    try:
        pipe.write(data)
        await pipe.drain()
    except (BrokenPipeError, ConnectionResetError):
        pass  # it ended without reading everything; how is told by its exit status
    finally:
        pipe.close()


async def _read(pipe: asyncio.StreamReader, limit: int) -> tuple[str, bool]:
    """Text up to a limit in bytes, and whether there is more."""
    data = b""
    while len(data) <= limit:
        part = await pipe.read(min(65536, limit + 1 - len(data)))
        if not part:
            break
        data += part
    return data[:limit].decode("utf-8", "replace"), len(data) > limit
