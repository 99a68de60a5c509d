"""Programs that want a verdict they have not earned, or something that isn't theirs.

Every program prints ``ESCAPED`` when it gets what it tries for. The words in capitals are filled in
by the test: a file anyone may read and write, its folder, a port and a socket that listen, the
process ids of the verifier and of a bystander, a mark to leave behind.
"""

from __future__ import annotations

SYSCALL = """
import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
def syscall(x86, arm, *arguments):
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return libc.syscall(ctypes.c_long(x86 if X86 else arm), *words)
"""

FAKED_VERDICTS = {
    "exit 0 at once": "import os; os._exit(0)",
    "sys.exit 0": "import sys; sys.exit(0)",
    "exit code of success, many ways": "raise SystemExit(None)",
    "print a verdict": "print('right'); print('{\"status\": \"right\"}'); print('PASS', 1, True)",
    "print a report to every descriptor": """
import os, json
for fd in range(64):
    for word in (b'{"cause":"exit","status":0,"run":1}', b'!', b'{"returned":1,"cpu":0}\\n'):
        try: os.write(fd, word)
        except OSError: pass
""",
    "echo the input": "import sys; print(sys.stdin.read())",
    "object that equals everything": """
class Any(str):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
import builtins; builtins.str = Any
print(Any("x"))
""",
    "walk the stack for the expected output": """
import sys
frame = sys._getframe()
while frame:
    for name, value in [*frame.f_locals.items(), *frame.f_globals.items()]:
        if "EXPECT" "ED-" in str(value): print(str(value)[:500])
    frame = frame.f_back
""",
    "search all objects for the expected output": """
import gc
for thing in gc.get_objects():
    try: text = repr(thing)
    except Exception: continue
    at = text.find("EXPECT" + "ED-")
    if at >= 0: print(text[at:at + 25])
""",
    "search own memory for the expected output": """
import ctypes, re
wanted = b"EXPECT" + b"ED-"
maps = []
try: maps = open("/proc/self/maps").read().splitlines()
except OSError: pass
for base in [id(object()) & ~0xFFFFF, *[int(line.split("-")[0], 16) for line in maps]]:
    try: data = ctypes.string_at(base, 1 << 20)
    except Exception: continue
    at = data.find(wanted)
    if at >= 0: print(data[at:at + 25].decode()); break
""",
    "patch the comparison": """
import json, builtins, decimal
json.loads = lambda *a, **k: None
json.dumps = lambda *a, **k: '"EXPECTED"'
builtins.all = builtins.any = lambda *a: True
decimal.Decimal.__eq__ = None
""",
    "patch the stream": """
import sys
class Both:
    def write(self, text): return len(text)
    def flush(self): raise SystemExit(0)
sys.stdout = Both()
print("anything")
""",
    "trace into the harness": """
import sys
def trace(frame, event, arg):
    for value in frame.f_locals.values():
        if isinstance(value, str) and value.startswith("EXPECTED"): print(value)
    return trace
sys.settrace(trace)
sys.setprofile(trace)
import json, threading
json.loads("[1]")
""",
    "at exit, from the last breath": """
import atexit, os
@atexit.register
def last():
    import gc
    for thing in gc.get_objects():
        if isinstance(thing, dict) and "expected" in thing: print(thing["expected"])
    os._exit(0)
""",
    "import the verifier": """
for name in ("rlbhpc.verify.kinds.code", "rlbhpc.verify.code.livecodebench", "rlbhpc.store"):
    try:
        __import__(name); print("ESCAPED", name)
    except ImportError: pass
""",
    "fake an end and go on": """
import os, sys, time
sys.stdout.flush(); os.close(1); os.close(2)
time.sleep(60)
""",
    "forge a NUL-ridden, broken-encoding output": """
import os
os.write(1, b"\\xff\\xfe\\x00EXPECTED\\x00\\xed\\xa0\\x80" * 100)
""",
}

TIME = {
    "loop for ever": "while True: pass",
    "sleep for ever": "import time\ntime.sleep(10**6)",
    "loop in C": "sum(range(10**15))",
    "loop in a regular expression": "import re; re.match('(a+)+$', 'a' * 60 + 'b')",
    "power of powers": "print(len(str(9 ** (9 ** 9))))",
    "ignore every signal": """
import signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: pass
""",
    "block every signal and stop oneself": """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
os.kill(os.getpid(), signal.SIGSTOP)
while True: pass
""",
    "spread over threads": """
import threading
for _ in range(8): threading.Thread(target=lambda: sum(range(10**12))).start()
""",
    "shift the clock": """
import time
time.clock_settime(time.CLOCK_REALTIME, 0); print("ESCAPED")
""",
    "wait for a thread that never ends": """
import threading
threading.Thread(target=threading.Event().wait).start()
""",
    "at exit, never": "import atexit\n@atexit.register\ndef hang():\n    while True: pass",
    "destructor that never returns": """
class Thing:
    def __del__(self):
        while True: pass
thing = Thing()
""",
    "compile for ever": "compile('(' * 90 + 'x' + ')' * 90 + '+1' * 10**6, 'x', 'eval')\nwhile 1: 0",
}

MEMORY = {
    "one big block": "x = bytearray(64 << 30); print('ESCAPED')",
    "blocks without end": "x = []\nwhile True: x.append(bytearray(1 << 24))",
    "string that doubles": "s = 'x'\nwhile True: s += s",
    "catch the error and go on": """
x = []
while True:
    try: x.append(bytearray(1 << 20))
    except MemoryError: pass
""",
    "anonymous maps": """
import mmap
x = []
while True:
    m = mmap.mmap(-1, 1 << 26); m[::4096] = b"x" * (1 << 14); x.append(m)
""",
    "files in memory": SYSCALL
    + """
for n in range(200):
    fd = syscall(319, 279, b"x", 0)
    if fd >= 0: print("ESCAPED"); libc.ftruncate(fd, ctypes.c_long(1 << 30))
""",
    "shared memory": """
from multiprocessing import shared_memory
x = shared_memory.SharedMemory(create=True, size=1 << 20); print("ESCAPED")
""",
    "System V shared memory": SYSCALL
    + """
for n in range(100):
    if syscall(29, 194, 0, 1 << 28, 0o1666) >= 0: print("ESCAPED")
""",
    "recursion without end": """
import sys
sys.setrecursionlimit(10**9)
def f(n): return [f(n + 1)] and max([n], key=lambda x: f(x))
f(0)
""",
    "deep nesting in the parser": "exec('-' * 10**6 + '1')",
    "lock memory": SYSCALL
    + """
if syscall(151, 230, 1) == 0 and bytearray(1 << 27): print("ESCAPED")
""",
    "pipes full of data": """
import os, fcntl
held = []
try:
    while True:
        r, w = os.pipe(); os.set_blocking(w, False); held += [r, w]
        try: fcntl.fcntl(w, 1031, 1 << 20); print("ESCAPED")
        except OSError: pass
        os.write(w, b"x" * 65536)
except OSError: pass
""",
}

OUTPUT = {
    "512 MB of output": "import sys\nfor _ in range(512): sys.stdout.write('y' * (1 << 20))",
    "512 MB past Python": "import os\nwhile True: os.write(1, b'z' * (1 << 16))",
    "512 MB of errors": "import os\nfor _ in range(8192): os.write(2, b'e' * (1 << 16))",
    "one line without end": "while True: print('x', end='')",
    "empty lines without end": "while True: print()",
    "digits without end": "print('9' * (4 << 20))",
    "terminal escapes": "print('\\x1b]0;owned\\x07\\x1b[2J' * 1000)",
}

PROCESSES = {
    "fork": "import os\nif os.fork() >= 0: print('ESCAPED')",
    "fork bomb": """
import os
while True:
    try: os.fork(); print("ESCAPED")
    except OSError: pass
""",
    "vfork by number": SYSCALL + "print('ESCAPED' if syscall(58, 220, 17) >= 0 else 'held')",
    "fork by number": SYSCALL
    + "print('ESCAPED' if syscall(57, 220, 17, 0, 0, 0, 0) >= 0 else 'held')",
    "clone by number": SYSCALL + "print('ESCAPED' if syscall(56, 220, 17, 0, 0, 0, 0) >= 0 else 0)",
    "clone3 by number": SYSCALL
    + """
arguments = (ctypes.c_uint64 * 11)(0, 0, 0, 0, 17)
if syscall(435, 435, ctypes.byref(arguments), 88) >= 0: print("ESCAPED")
""",
    "subprocess": "import subprocess; print('ESCAPED', subprocess.check_output(['/bin/id']))",
    "shell": "import os\nif os.system('true') == 0: print('ESCAPED')",
    "become a shell": "import os; os.execv('/bin/sh', ['sh', '-c', 'echo ESCAPED'])",
    "run from memory": SYSCALL
    + """
import os
if syscall(322, 281, 0, b"", 0, 0, 0x1000) >= 0: print("ESCAPED")
""",
    "posix_spawn": "import os; os.posix_spawn('/bin/true', ['true'], {}); print('ESCAPED')",
    "pty": "import pty; pty.spawn(['/bin/sh']); print('ESCAPED')",
    "pool of processes": """
import multiprocessing
with multiprocessing.Pool(4) as pool: print("ESCAPED", pool.map(abs, [1]))
""",
    "a million threads": """
import threading
threading.stack_size(32768)
gate = threading.Event()
for n in range(10**6):
    try: threading.Thread(target=gate.wait, daemon=True).start()
    except RuntimeError: break
    if n == 5000: print("ESCAPED")
import time; time.sleep(60)
""",
    "leave a daemon": """
import os
for _ in range(2):
    if os.fork(): os._exit(0)
os.setsid(); print("ESCAPED")
""",
    "new session": "import os; os.setsid(); print('ESCAPED')",
    "more descriptors than allowed": """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096)); print("ESCAPED")
""",
    "as many descriptors as can be had": """
import os
held = []
while True:
    held.append(os.dup(0))
    if len(held) > 2000: print("ESCAPED"); break
""",
    "raise the limits": """
import resource
for which in (resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC):
    soft, hard = resource.getrlimit(which)
    if hard != -1:
        try: resource.setrlimit(which, (hard + 1, hard + 1)); print("ESCAPED")
        except (ValueError, OSError): pass
        try: resource.setrlimit(which, (-1, -1)); print("ESCAPED")
        except (ValueError, OSError): pass
""",
    "limits of the verifier": """
import resource
resource.prlimit(VERIFIER, resource.RLIMIT_NOFILE); print("ESCAPED")
""",
    "priority of others": "import os; os.setpriority(os.PRIO_USER, os.getuid(), 19); print('ESCAPED')",
    "affinity of the verifier": "import os; os.sched_setaffinity(VERIFIER, [0]); print('ESCAPED')",
    "realtime": "import os\nos.sched_setscheduler(0, 1, os.sched_param(1)); print('ESCAPED')",
    "new user namespace": SYSCALL + "print('ESCAPED' if syscall(272, 97, 0x10000000) == 0 else 0)",
    "join a namespace": """
import os
if os.setns(os.open("/proc/1/ns/net", 0)) is None: print("ESCAPED")
""",
    "asynchronous calls (io_uring)": SYSCALL
    + """
ring = (ctypes.c_char * 120)()
if syscall(425, 425, 8, ctypes.byref(ring)) >= 0: print("ESCAPED")
""",
    "the 32-bit door": SYSCALL
    + """
import mmap
code = b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3"  # mov eax, getpid of i386; int 0x80; ret
page = mmap.mmap(-1, 4096, prot=7)
page.write(code)
entry = ctypes.addressof(ctypes.c_char.from_buffer(page))
if ctypes.CFUNCTYPE(ctypes.c_int)(entry)() > 0: print("ESCAPED")
""",
    "the x32 door": SYSCALL + "print('ESCAPED' if syscall(0x40000000 + 57, 220, 17) >= 0 else 0)",
    "a later architecture's calls": SYSCALL
    + """
for number in range(442, 600):
    if syscall(number, number, 0, 0, 0, 0, 0, 0) >= 0: print("ESCAPED", number)
""",
}

SIGNALS = {
    "kill the parent": "import os; os.kill(os.getppid(), 9); print('ESCAPED')",
    "kill the verifier": "import os; os.kill(VERIFIER, 9); print('ESCAPED')",
    "kill a bystander": "import os; os.kill(BYSTANDER, 9); print('ESCAPED')",
    "kill everyone": "import os; os.kill(-1, 9); print('ESCAPED')",
    "kill one's group": "import os; os.kill(0, 9); print('ESCAPED')",
    "kill the verifier's group": "import os; os.killpg(os.getpgid(VERIFIER), 9); print('ESCAPED')",
    "tkill by number": SYSCALL + "print('ESCAPED' if syscall(200, 130, BYSTANDER, 9) == 0 else 0)",
    "tgkill by number": SYSCALL
    + """
if syscall(234, 131, BYSTANDER, BYSTANDER, 9) == 0: print("ESCAPED")
""",
    "queue a signal": SYSCALL
    + """
info = (ctypes.c_char * 128)()
if syscall(129, 138, BYSTANDER, 9, ctypes.byref(info)) == 0: print("ESCAPED")
""",
    "signal through a descriptor": """
import os, signal
signal.pidfd_send_signal(os.pidfd_open(BYSTANDER), 9); print("ESCAPED")
""",
    "have the kernel signal the owner of a pipe": """
import fcntl, os, socket
a, b = socket.socketpair()
fcntl.fcntl(a, fcntl.F_SETOWN, BYSTANDER)
fcntl.fcntl(a, 10, 9)
fcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC)
b.send(b"x"); print("ESCAPED")
""",
    "the same through ioctl": """
import fcntl, socket, struct
a, b = socket.socketpair()
fcntl.ioctl(a, 0x8901, struct.pack("i", BYSTANDER)); print("ESCAPED")
""",
    "a signal for when the parent dies": SYSCALL
    + """
if libc.prctl(1, 0, 0, 0, 0) == 0: print("ESCAPED")
""",
}

FILES = {
    "read a file": "print('ESCAPED', open('CANARY').read())",
    "read by descriptor": "import os; print('ESCAPED', os.read(os.open('CANARY', 0), 99))",
    "map a file": """
import mmap, os
print("ESCAPED", mmap.mmap(os.open("CANARY", 0), 0, prot=1)[:])
""",
    "read the user list": "print('ESCAPED', open('/etc/passwd').read())",
    "read a home": "import os; print('ESCAPED', os.listdir(os.path.expanduser('~root')))",
    "list the root": """
import os
names = set(os.listdir("/"))
if names - {"dev", "tmp", "proc"}: print("ESCAPED", names)
""",
    "list the canary's folder": "import os; print('ESCAPED', os.listdir('FOLDER'))",
    "write a file": "open('CANARY', 'w').write('owned'); print('ESCAPED')",
    "append to a file": "open('CANARY', 'ab').write(b'owned'); print('ESCAPED')",
    "create a file beside": "open('FOLDER/MARK', 'w').write('x'); print('ESCAPED')",
    "create in the usual places": """
for place in ("/var/tmp", "/dev/shm", "/run", "/root", "/home", "/"):
    try: open(place + "/MARK", "w").write("x"); print("ESCAPED", place)
    except OSError: pass
""",
    "truncate by path": "import os; os.truncate('CANARY', 0); print('ESCAPED')",
    "truncate while reading": "import os; os.open('CANARY', os.O_RDONLY | os.O_TRUNC); print('ESCAPED')",
    "remove": "import os; os.remove('CANARY'); print('ESCAPED')",
    "rename": "import os; os.rename('CANARY', 'CANARY2'); print('ESCAPED')",
    "link into scratch": "import os; os.link('CANARY', 'here'); print('ESCAPED', open('here').read())",
    "symbolic link": "import os; os.symlink('CANARY', 'here'); print('ESCAPED', open('here').read())",
    "link a folder for the cleaner": """
import os
os.symlink("FOLDER", "trap"); os.mkdir("d"); os.symlink("FOLDER", "d/trap")
""",
    "climb out of the root": """
import os
os.chdir("/" + "../" * 50)
up = os.open("../" * 50 + "etc/hostname", os.O_RDONLY); print("ESCAPED")
""",
    "another root": """
import os
os.mkdir("r"); os.chroot("r"); os.chdir("../" * 50); print("ESCAPED", os.listdir("."))
""",
    "a handle instead of a path": SYSCALL
    + """
handle = (ctypes.c_int * 36)(128)
mount = ctypes.c_int()
if syscall(303, 264, -100, b"CANARY", handle, ctypes.byref(mount), 0) == 0: print("ESCAPED")
""",
    "openat2": SYSCALL
    + """
how = (ctypes.c_uint64 * 3)(0, 0, 0)
if syscall(437, 437, -100, b"CANARY", how, 24) >= 0: print("ESCAPED")
""",
    "change the mode": "import os; os.chmod('CANARY', 0); print('ESCAPED')",
    "change the times": "import os; os.utime('CANARY', (0, 0)); print('ESCAPED')",
    "change the owner": "import os; os.chown('CANARY', os.getuid(), -1); print('ESCAPED')",
    "extended attributes": "import os; os.setxattr('CANARY', 'user.x', b'1'); print('ESCAPED')",
    "make a device": "import os; os.mknod('disk', 0o60666, os.makedev(8, 0)); print('ESCAPED')",
    "mount": SYSCALL
    + """
if libc.mount(b"none", b"/tmp", b"tmpfs", ctypes.c_ulong(0), None) == 0: print("ESCAPED")
""",
    "fill the disk with one file": """
with open("big", "wb") as f:
    for _ in range(1024): f.write(b"x" * (1 << 20))
print("ESCAPED")
""",
    "fill the disk with many files": """
for n in range(10**6):
    open(f"f{n}", "wb").write(b"x" * (1 << 20))
    if n == 500: print("ESCAPED")
""",
    "a hundred thousand names": """
for n in range(100000): open(f"f{n}", "w").close()
print("ESCAPED")
""",
    "a tree that can't be removed": """
import os
for n in range(900):
    os.mkdir("d" * 200, 0o300); os.chdir("d" * 200)
""",
    "folders that can't be entered": """
import os
for n in range(20): os.makedirs(f"a{n}/b/c"); os.mkdir(f"a{n}/b/c/d", 0)
""",
    "leave something for the next": "open('MARK', 'w').write('hello'); print(open('MARK').read())",
    "read the tests from the working folder": """
import glob
for name in glob.glob("**", recursive=True) + glob.glob("../*"): print("found", name, open(name).read())
""",
    "watch files": SYSCALL
    + """
fd = syscall(294, 26, 0)
if fd >= 0 and syscall(254, 27, fd, b"FOLDER", 0xFFF) >= 0: print("ESCAPED")
""",
    "core dump": "import os, resource\nresource.setrlimit(resource.RLIMIT_CORE, (-1, -1)); os.abort()",
}

NETWORK = {
    "connect to this machine": """
import socket
socket.create_connection(("127.0.0.1", PORT), 2).send(b"x"); print("ESCAPED")
""",
    "connect by IPv6": "import socket; socket.create_connection(('::1', PORT), 2); print('ESCAPED')",
    "send a datagram": """
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", PORT)); print("ESCAPED")
""",
    "listen": """
import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); print("ESCAPED")
""",
    "raw packets": "import socket; socket.socket(17, 3, 0x300); print('ESCAPED')",
    "netlink": "import socket; socket.socket(16, 3, 0); print('ESCAPED')",
    "abstract socket": """
import socket
s = socket.socket(socket.AF_UNIX); s.connect("\\0SOCKET"); print("ESCAPED")
""",
    "datagram from a pair to an abstract socket": """
import socket
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
a.sendto(b"x", "\\0SOCKET-D"); print("ESCAPED")
""",
    "message with an address from a stream pair": """
import socket
a, b = socket.socketpair()
a.sendmsg([b"x"], [], 0, "\\0SOCKET-D"); print("ESCAPED")
""",
    "system log": """
import socket
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
a.sendto(b"<13>owned", "/dev/log"); print("ESCAPED")
""",
    "look up a name": "import socket; print('ESCAPED', socket.gethostbyname('localhost.localdomain'))",
    "fetch": """
import urllib.request
print("ESCAPED", urllib.request.urlopen("http://127.0.0.1:PORT/", timeout=2).read())
""",
}

SECRETS = {
    "environment": """
import os
for name, value in os.environ.items():
    if "TOKEN" in name or "SLURM" in name or "SECRET" in value: print("ESCAPED", name, value)
""",
    "environment as it was at the start": "print('ESCAPED', open('/proc/self/environ').read())",
    "environment of the parent": """
import os
print("ESCAPED", open(f"/proc/{os.getppid()}/environ").read())
""",
    "environment of the verifier": "print('ESCAPED', open('/proc/VERIFIER/environ').read())",
    "command lines": """
import os
for name in os.listdir("/proc"):
    if name.isdigit(): print("ESCAPED", open(f"/proc/{name}/cmdline").read())
""",
    "keys": """
import os, pwd
homes = {os.environ.get("HOME", ""), "/root"} | {p.pw_dir for p in pwd.getpwall()}
for home in homes:
    for name in (".ssh/id_rsa", ".netrc", ".cache/huggingface/token", ".bashrc", ".profile"):
        try: print("ESCAPED", open(os.path.join(home, name)).read())
        except OSError: pass
""",
    "kernel keyring": SYSCALL
    + """
if syscall(250, 219, 0, -3, 1, 0, 0) >= 0: print("ESCAPED")
""",
    "kernel log": SYSCALL
    + """
buffer = (ctypes.c_char * 4096)()
if syscall(103, 116, 3, ctypes.byref(buffer), 4096) >= 0: print("ESCAPED")
""",
    "inherited descriptors": """
import os
for fd in range(5, 1024):
    try: os.fstat(fd); print("ESCAPED", fd)
    except OSError: pass
""",
    "type into the terminal": """
import fcntl
for fd in (0, 1, 2): fcntl.ioctl(fd, 0x5412, b"x"); print("ESCAPED")
""",
    "open the terminal": "open('/dev/tty', 'w').write('owned'); print('ESCAPED')",
    "host name": """
import socket
socket.sethostname("owned"); print("ESCAPED")
""",
}

PARENT_MEMORY = {
    "read the parent's memory": """
import os
with open(f"/proc/{os.getppid()}/mem", "rb") as f: f.seek(4096); print("ESCAPED", f.read(1))
""",
    "map of the parent": "import os; print('ESCAPED', open(f'/proc/{os.getppid()}/maps').read())",
    "memory of the verifier": """
for line in open("/proc/VERIFIER/maps"):
    first, last = (int(x, 16) for x in line.split()[0].split("-"))
    with open("/proc/VERIFIER/mem", "rb") as f: f.seek(first); print("ESCAPED", f.read(last - first))
""",
    "memory by system call": SYSCALL
    + """
class Part(ctypes.Structure): _fields_ = [("at", ctypes.c_void_p), ("size", ctypes.c_size_t)]
here = (ctypes.c_char * 64)()
local, remote = Part(ctypes.addressof(here), 64), Part(id(here), 64)
for pid in (VERIFIER, BYSTANDER, libc.getppid()):
    if syscall(310, 270, pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) >= 0:
        print("ESCAPED")
""",
    "write memory by system call": SYSCALL
    + """
class Part(ctypes.Structure): _fields_ = [("at", ctypes.c_void_p), ("size", ctypes.c_size_t)]
here = (ctypes.c_char * 64)()
part = Part(ctypes.addressof(here), 64)
for pid in (VERIFIER, libc.getppid()):
    if syscall(311, 271, pid, ctypes.byref(part), 1, ctypes.byref(part), 1, 0) >= 0: print("ESCAPED")
""",
    "trace the parent": SYSCALL
    + """
for pid in (VERIFIER, BYSTANDER, libc.getppid()):
    if libc.ptrace(16, pid, 0, 0) == 0: print("ESCAPED")
""",
    "let the parent trace": SYSCALL + "print('ESCAPED' if libc.ptrace(0, 0, 0, 0) == 0 else 0)",
    "compare descriptors": SYSCALL
    + """
if syscall(312, 272, VERIFIER, BYSTANDER, 0, 0, 0) >= 0: print("ESCAPED")
""",
    "take a descriptor": SYSCALL
    + """
fd = syscall(434, 434, VERIFIER, 0)
if fd >= 0: print("ESCAPED"); syscall(438, 438, fd, 3, 0)
""",
    "page faults as a service": SYSCALL + "print('ESCAPED' if syscall(323, 282, 1) >= 0 else 0)",
    "program the kernel": SYSCALL
    + """
attribute = (ctypes.c_char * 128)()
if syscall(321, 280, 0, ctypes.byref(attribute), 128) >= 0: print("ESCAPED")
""",
    "count events": SYSCALL
    + """
attribute = (ctypes.c_char * 128)()
if syscall(298, 241, ctypes.byref(attribute), 0, -1, -1, 0) >= 0: print("ESCAPED")
""",
    "be traceable again": SYSCALL + "print('ESCAPED' if libc.prctl(4, 1, 0, 0, 0) == 0 else 0)",
    "lift the filter": SYSCALL
    + """
if libc.prctl(22, 0, 0, 0, 0) == 0 or syscall(317, 277, 0, 0, 0) == 0: print("ESCAPED")
""",
    "change what the next program imports": """
import sys, ctypes
for finder in sys.meta_path:
    memory = getattr(finder, "_memory", None)
    if memory is not None:
        try: memory[0:4] = b"evil"; print("ESCAPED")
        except TypeError: pass
        libc = ctypes.CDLL(None)
        buffer = (ctypes.c_char * 1).from_buffer_copy(b"x")
""",
    "capabilities": SYSCALL
    + """
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
data = (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)
if syscall(126, 91, ctypes.byref(header), ctypes.byref(data)) == 0: print("ESCAPED")
""",
    "another user": """
import os
for call in (os.setuid, os.setgid):
    try: call(0); print("ESCAPED")
    except OSError: pass
if os.getuid() == 0: print("ESCAPED")
""",
}

HOSTILE = {
    "faked verdict": FAKED_VERDICTS, "time": TIME, "memory": MEMORY, "output": OUTPUT,
    "processes": PROCESSES, "signals": SIGNALS, "files": FILES, "network": NETWORK,
    "secrets": SECRETS, "parent's memory": PARENT_MEMORY,
}  # fmt: skip

# The function f(x) of a called program; what is returned or done instead of an answer.
HOSTILE_CALLS = {
    "equals everything": """
class Any:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
def f(x): return Any()
""",
    "list that equals everything": """
class Any(list):
    def __eq__(self, other): return True
    def __len__(self): return 3
def f(x): return Any()
""",
    "number that equals everything": """
class Any(float):
    def __eq__(self, other): return True
    def __float__(self): return 1.0
    def __sub__(self, other): return 0.0
    __rsub__ = __abs__ = __sub__
def f(x): return Any(1)
""",
    "string that equals everything": """
class Any(str):
    def __eq__(self, other): return True
    def __str__(self): return "EXPECTED"
def f(x): return Any("x")
""",
    "type that lies": """
class Meta(type):
    def __instancecheck__(cls, other): return True
    def __eq__(cls, other): return True
class Any(metaclass=Meta):
    __class__ = list
def f(x): return Any()
""",
    "result of oneself": "def f(x):\n    y = []\n    y.append(y)\n    return y",
    "result a thousand deep": "def f(x):\n    y = []\n    for _ in range(10**5): y = [y]\n    return y",
    "result a billion wide": """
def f(x):
    y = [0] * 10
    for _ in range(9): y = [y] * 10
    return y
""",
    "colliding keys": "def f(x): return {k * (2**61 - 1) for k in range(1, 10**5)}",
    "a number of a million digits": "def f(x): return 10 ** 10**6",
    "not a number": "def f(x): return float('nan')",
    "infinity": "def f(x): return float('inf')",
    "lone surrogates": "def f(x): return '\\ud800' * 1000",
    "raise what harnesses catch": "def f(x): raise SystemExit(0)",
    "raise what nobody catches": "def f(x): raise GeneratorExit",
    "exit": "import os\ndef f(x): os._exit(0)",
    "forge records": """
import os
def f(x):
    for fd in range(3, 10):
        for value in (b"1", b'"EXPECTED"', b"[]", b"null", b"true"):
            try: os.write(fd, b'{"returned":' + value + b',"cpu":0.0}\\n')
            except OSError: pass
    os._exit(0)
""",
    "forge broken records": """
import os
def f(x):
    os.write(3, b'{"returned":{"s":[[1]]},"cpu":0}\\n{"returned":{"__class__":1},"cpu":0}\\n')
    os.write(3, b'{"returned":' + b"[" * 10**6 + b"\\n" + b"\\xff" * 100 + b"\\n" + b"1" * 10**6)
    os._exit(0)
""",
    "a pickle": """
import os
def f(x):
    os.write(3, b"cposix\\nsystem\\n(S'touch CANARY2'\\ntR.\\n"); os._exit(0)
""",
    "result without end": """
import os
def f(x):
    while True: os.write(3, b'{"returned":[' + b"0," * 30000)
""",
    "patch the driver": """
import sys, json
for module in list(sys.modules.values()):
    for name in ("dumps", "_encode", "_called", "_write", "loads"):
        if getattr(module, name, None): setattr(module, name, lambda *a, **k: b'"EXPECTED"')
def f(x): return 1
""",
    "read the caller": """
import sys
def f(x):
    frame = sys._getframe()
    while frame:
        for value in frame.f_locals.values():
            if "EXPECTED" in repr(value): return value
        frame = frame.f_back
""",
    "loop": "def f(x):\n    while True: pass",
    "loop and catch": """
def f(x):
    while True:
        try:
            while True: pass
        except BaseException: pass
""",
    "generator": "def f(x): yield from iter(int, 1)",
    "coroutine": "async def f(x): return 1",
    "dictionary view": "def f(x): return {1: 2}.items()",
    "encoded as what it is not": """
def f(x): return {"t": [1], "o": "Opaque", "returned": 1}
""",
    "no function": "g = 1",
    "function is data": "f = 'EXPECTED'",
}
