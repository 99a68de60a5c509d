"""The supervisor: a small process that holds no secret, forks one child per run and watches it.

It is started by :mod:`rlbhpc.verify.sandbox.box` as a fresh interpreter with an empty environment.
It loads the library, gives up all rights, enters the tier it was told to, says so, and then serves
runs one at a time. It never sees a program: the child reads that from a descriptor of its own, so
nothing of one run is left in memory that the next one inherits. It never sees an expected output
either; those stay with the verifier.
"""

from __future__ import annotations

import gc
import importlib
import json
import marshal
import os
import re
import resource
import site
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

from rlbhpc.verify.sandbox import (
    control_group,
    landlock,
    namespaces,
    preamble,
    privileges,
    scratch,
)
from rlbhpc.verify.sandbox import seccomp as seccomp_filter
from rlbhpc.verify.sandbox.job import CHUNK
from rlbhpc.verify.sandbox.library import Library, join_mappings, preload_extensions, serve_only
from rlbhpc.verify.sandbox.program import Confinement, name_descriptors, prepare_streams
from rlbhpc.verify.sandbox.watch import Watch

LEAN_MODULES: Final = (
    "abc", "array", "ast", "bisect", "calendar", "cmath", "collections", "collections.abc",
    "contextlib", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions", "functools",
    "gc", "heapq", "io", "itertools", "json", "keyword", "linecache", "math", "numbers",
    "operator", "os", "os.path", "pprint", "queue", "random", "re", "select", "signal", "stat",
    "statistics", "string", "struct", "sys", "textwrap", "threading", "time", "traceback", "types",
    "typing", "warnings", "weakref", "builtins", "__future__",
)  # fmt: skip
_NUMPY_MODULES: Final = ("numpy", "numpy.fft", "numpy.linalg", "numpy.ma", "numpy.polynomial",
                         "numpy.random")  # fmt: skip
_COMMON_MODULES: Final = ("asyncio", "concurrent.futures", "hashlib", "tempfile", "uuid")


def _load(wide: bool, packages: list[Path], preload: str, path: list[str]) -> None:
    """Load what programs may import: common modules now, the rest into memory."""
    for name in LEAN_MODULES:
        importlib.import_module(name)
    if wide:
        preload_extensions()
        for folder in packages:
            sys.path.append(str(folder.parent))
        for name in (*_COMMON_MODULES, *_NUMPY_MODULES, "rlbhpc.verify.sandbox.shim"):
            importlib.import_module(name)
    if preload:
        before = set(sys.modules)
        sys.path.extend(path)
        importlib.import_module(preload)
        # What it imports later, with nothing of the file system left, comes from memory too.
        packages = packages + _packages(set(sys.modules) - before)
    serve_only(Library(packages if wide else []))
    # exit() and quit(), which an interpreter that starts without site lacks.
    site.setquit()
    name_descriptors()
    prepare_streams()
    preamble.prepare()
    join_mappings()


def _packages(modules: set[str]) -> list[Path]:
    """Folders of the packages of which these are modules."""
    top = {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names)
    # A module that is no package was loaded whole.
    files = [getattr(sys.modules.get(name), "__file__", None) for name in sorted(top)]
    return [Path(file).parent for file in files if file and Path(file).name == "__init__.py"]


def _confine(settings: dict[str, Any], control: socket.socket) -> Confinement:
    """Enter the tier; the confinement of programs."""
    # Outlives the change of root, for this process alone: each child closes it.
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    group = control_group.join_new() if settings["cgroup"] else None
    with suppress(OSError):
        # When memory runs out the kernel should take a program, not the job around it.
        Path("/proc/self/oom_score_adj").write_text("1000")
    alone = privileges.drop_root()
    own_folder = ""
    if settings["namespaces"]:
        # Another user's process may not be looked into, not even by itself, unless told.
        privileges.set_traceable(True)
        namespaces.enter()
        namespaces.private_root(scratch.MOST_BYTES, scratch.MOST_FILES)
        _become_first_process(control)
        folder = str(namespaces.SCRATCH)
    else:
        own_folder = scratch.make(settings["local"]) if settings["landlock"] else ""
        folder = own_folder or "/"
    privileges.set_traceable(False)
    privileges.gain_nothing()
    rules = None
    if settings["landlock"]:
        allowed = dict.fromkeys(namespaces.DEVICES, landlock.READ_FILE)
        allowed[Path(os.devnull)] = landlock.READ_WRITE_FILE
        allowed[Path(folder)] = landlock.WHOLE_FOLDER
        rules = landlock.ruleset(allowed)
    files = settings["namespaces"] or settings["landlock"]
    counted = alone or (settings["namespaces"] and counts_threads(os.uname().release))
    confinement = Confinement(
        filter=seccomp_filter.program_filter(files) if settings["seccomp"] else None,
        rules=rules,
        scratch=folder,
        counted_threads=counted,
        supervisor=os.getpid(),
        null=os.open("/dev/null", os.O_RDWR),
        proc=proc,
    )
    if settings["seccomp"]:
        seccomp_filter.install(seccomp_filter.supervisor_filter(), os.getpid())
    hello = {"group": str(group) if group else "", "scratch": own_folder}
    control.send(json.dumps(hello).encode())
    return confinement


def counts_threads(release: str) -> bool:
    """Whether a kernel counts RLIMIT_NPROC within a user namespace, as Linux 5.14 and later do."""
    major, minor = re.findall(r"\d+", release)[:2]
    return (int(major), int(minor)) >= (5, 14)


def _become_first_process(control: socket.socket) -> None:
    """Fork: the child goes on as process 1 of its namespace, the parent waits for its end."""
    child = os.fork()
    if child:
        control.close()
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0x7F)
    # Seen from inside, the parent has no number.
    privileges.die_with_parent(0)


def _serve(control: socket.socket, watch: Watch) -> None:
    """Serve runs until the verifier goes away."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, CHUNK, 5)
        if not message:
            return
        request = marshal.loads(message)
        # An order to stop may cross the report of the run's own end.
        if "stop" not in request:
            control.send(json.dumps(watch.run(request, descriptors)).encode())


def main(channel: int) -> NoReturn:
    """Run the supervisor on an inherited socket."""
    control = socket.socket(fileno=channel)
    settings = json.loads(control.recv(CHUNK))
    os.setsid()
    privileges.set_limits({resource.RLIMIT_NOFILE: privileges.MOST_OPEN, resource.RLIMIT_CORE: 0})
    try:
        folders = [Path(folder) for folder in settings["packages"]]
        _load(settings["wide"], folders, settings["preload"], settings["path"])
        confinement = _confine(settings, control)
    except OSError as error:
        control.send(json.dumps({"failed": str(error)}).encode())
        sys.exit()
    for name in ("HOME", "TMPDIR"):
        os.environ[name] = confinement.scratch
    os.environ.pop("LD_LIBRARY_PATH", None)
    sys.argv, sys.path[:] = ["main.py"], [confinement.scratch]
    gc.collect()
    gc.freeze()
    try:
        _serve(control, Watch(control, confinement))
    finally:
        with suppress(OSError):  # any other is a root or the place of a mount
            Path(confinement.scratch).rmdir()
    sys.exit()
