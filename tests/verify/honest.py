"""Programs that earn their verdict in unusual ways: all read n and n integers, print the sum."""

from __future__ import annotations

# Styles that LiveCodeBench's harness judges wrong: it replaces the streams by objects of its own.
MISJUDGED_ELSEWHERE = {
    "iterate over stdin": """
import sys
lines = [line for line in sys.stdin]
print(sum(map(int, lines[1].split())))
""",
    "lines of the buffer": """
import sys
input = sys.stdin.buffer.readline
n = int(input()); print(sum(map(int, input().split())))
""",
    "open descriptor 0": "n, *a = map(int, open(0).read().split()); print(sum(a))",
    "read the descriptor": """
import os
n, *a = map(int, os.read(0, 1 << 20).split()); print(sum(a))
""",
    "write to stdout's buffer": """
import sys
n = input(); sys.stdout.buffer.write(str(sum(map(int, input().split()))).encode() + b"\\n")
""",
    "write to the descriptor": """
import os
n = input(); os.write(1, b"%d\\n" % sum(map(int, input().split())))
""",
    "global statement": """
total = 0
def add(x):
    global total
    total += x
input()
for x in map(int, input().split()): add(x)
print(total)
""",
}

AWKWARD = {
    "main guard": """
def main():
    input(); print(sum(map(int, input().split())))
if __name__ == "__main__":
    main()
""",
    "no final newline": "input(); print(sum(map(int, input().split())), end='')",
    "exit in the middle": """
import sys
input(); print(sum(map(int, input().split()))); sys.exit()
print("never")
""",
    "exit without cleaning up": """
import os, sys
input(); print(sum(map(int, input().split()))); sys.stdout.flush(); os._exit(0)
""",
    "quit": "input(); print(sum(map(int, input().split()))); quit()",
    "deep recursion": """
import sys
sys.setrecursionlimit(10**6)
def depth(n): return 0 if n == 0 else 1 + depth(n - 1)
assert depth(40000) == 40000
input(); print(sum(map(int, input().split())))
""",
    "recursion in a thread with a large stack": """
import sys, threading
sys.setrecursionlimit(10**6)
threading.stack_size(256 << 20)
def depth(n): return 0 if n == 0 else 1 + max(depth(n - 1), 0)
def main():
    assert depth(50000) == 50000
    input(); print(sum(map(int, input().split())))
thread = threading.Thread(target=main); thread.start(); thread.join()
""",
    "cached recursion": """
import sys
from functools import lru_cache
sys.setrecursionlimit(100000)
@lru_cache(None)
def depth(n): return 0 if n == 0 else 1 + depth(n - 1)
assert depth(20000) == 20000
input(); print(sum(map(int, input().split())))
""",
    "as large as the file says": """
import os
n, *a = map(int, os.read(0, os.fstat(0).st_size).split()); print(sum(a))
""",
    "maps its input": """
import mmap
with mmap.mmap(0, 0, access=mmap.ACCESS_READ) as text:
    n, *a = map(int, text[:].split())
print(sum(a))
""",
    "maps its input for itself alone": """
import mmap, os
text = mmap.mmap(0, os.fstat(0).st_size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
text.readline(); print(sum(map(int, text.readline().split())))
""",
    "reads its input twice": """
import sys
assert sys.stdin.seekable() and len(sys.stdin.readlines()) == 2
sys.stdin.seek(0); input(); print(sum(map(int, input().split())))
""",
    "waits for its input": """
import selectors, sys
with selectors.DefaultSelector() as selector:
    selector.register(sys.stdin, selectors.EVENT_READ); selector.select()
    input(); print(sum(map(int, input().split())))
""",
    "begins with a byte-order mark": "\ufeffinput(); print(sum(map(int, input().split())))",
    "pool of threads": """
from concurrent.futures import ThreadPoolExecutor
input()
with ThreadPoolExecutor(8) as pool: print(sum(pool.map(int, input().split())))
""",
    "asyncio": """
import asyncio
async def main():
    await asyncio.sleep(0)
    input(); print(sum(await asyncio.gather(*(one(x) for x in input().split()))))
async def one(x): return int(x)
asyncio.run(main())
""",
    "asyncio that reads the pipe": """
import asyncio, sys
async def main():
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    await reader.readline()
    print(sum(map(int, (await reader.readline()).split())))
asyncio.run(main())
""",
    "NumPy": "import numpy as np\ninput(); print(np.array(input().split(), dtype=np.int64).sum())",
    "NumPy reads all": """
import sys
import numpy
print(int(numpy.fromstring(sys.stdin.read(), dtype=int, sep=" ")[1:].sum()))
""",
    "open stdin and stdout by name": """
with open("/dev/stdin") as source, open("/dev/stdout", "w") as target:
    source.readline(); target.write(str(sum(map(int, source.readline().split()))))
""",
    "a printer at exit": """
import atexit
out = []
atexit.register(lambda: print("".join(out)))
input(); out.append(str(sum(map(int, input().split()))))
""",
    "fast input and output of contest sites": """
import os, sys
from io import BytesIO, IOBase
class FastIO(IOBase):
    newlines = 0
    def __init__(self, file):
        self._fd = file.fileno()
        self.buffer = BytesIO()
        self.writable = "x" in file.mode or "r" not in file.mode
        self.write = self.buffer.write if self.writable else None
    def readline(self):
        while self.newlines == 0:
            b = os.read(self._fd, max(os.fstat(self._fd).st_size, 8192))
            self.newlines = b.count(b"\\n") + (not b)
            ptr = self.buffer.tell()
            self.buffer.seek(0, 2), self.buffer.write(b), self.buffer.seek(ptr)
        self.newlines -= 1
        return self.buffer.readline()
    def flush(self):
        if self.writable:
            os.write(self._fd, self.buffer.getvalue())
            self.buffer.truncate(0), self.buffer.seek(0)
class Wrapper(IOBase):
    def __init__(self, file):
        self.buffer = FastIO(file)
        self.flush = self.buffer.flush
        self.writable = self.buffer.writable
        self.write = lambda s: self.buffer.write(s.encode("ascii"))
        self.readline = lambda: self.buffer.readline().decode("ascii")
sys.stdin, sys.stdout = Wrapper(sys.stdin), Wrapper(sys.stdout)
input = lambda: sys.stdin.readline().rstrip("\\r\\n")
input(); print(sum(map(int, input().split())))
""",
    "stdout replaced until the end": """
import io, sys
real, sys.stdout = sys.stdout, io.StringIO()
input(); print(sum(map(int, input().split())))
real.write(sys.stdout.getvalue())
""",
    "a file left open": "out = open(1, 'w')\ninput(); out.write(str(sum(map(int, input().split()))))",
    "chatter on stderr": """
import sys
input(); print("debug " * 1000, file=sys.stderr); print(sum(map(int, input().split())))
""",
    "a long number on the way": "assert len(str(7 ** 20000)) > 16000\ninput(); print(sum(map(int, input().split())))",
    "dataclasses, enums, typing": """
from __future__ import annotations
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple
class Kind(Enum):
    A = auto()
class Pair(NamedTuple):
    x: int
    y: int = 0
@dataclass(order=True)
class Sum:
    items: list[int] = field(default_factory=list)
    def total(self) -> int: return sum(self.items)
input(); print(Sum([Pair(int(x)).x for x in input().split()]).total())
""",
    "pickle of a class of one's own": """
import copy, pickle
class Box:
    def __init__(self, x): self.x = x
input(); boxes = pickle.loads(pickle.dumps([Box(int(x)) for x in input().split()]))
print(sum(box.x for box in copy.deepcopy(boxes)))
""",
    "looks at its own source": """
import inspect
def f(): return 1
assert "return 1\\n" in inspect.getsource(f)
input(); print(sum(map(int, input().split())))
""",
    "catches its own errors": """
try: [][0]
except IndexError: pass
try:
    input(); a = list(map(int, input().split()))
    while True: input()
except EOFError: print(sum(a))
""",
    "an alarm": """
import signal
signal.signal(signal.SIGALRM, lambda *a: None)
signal.setitimer(signal.ITIMER_REAL, 0.01); signal.pause()
input(); print(sum(map(int, input().split())))
""",
    "a socket pair": """
import socket
a, b = socket.socketpair(); a.sendall(b"ping"); assert b.recv(4) == b"ping"
input(); print(sum(map(int, input().split())))
""",
    "a signal to itself": """
import os, signal
seen = []
signal.signal(signal.SIGUSR1, lambda *a: seen.append(1)); os.kill(os.getpid(), signal.SIGUSR1)
input(); print(sum(map(int, input().split())) if seen else None)
""",
    "unusual modules": """
import array, bisect, cmath, csv, decimal, fractions, hashlib, hmac, html, ipaddress, logging, secrets
import sqlite3, statistics, string, textwrap, unicodedata, uuid, zlib, xml.etree.ElementTree
logging.warning("to stderr")
database = sqlite3.connect(":memory:")
input(); print(decimal.Decimal(sum(map(fractions.Fraction, input().split())).numerator))
""",
    "import by name": "m = __import__('math')\ninput(); print(int(m.fsum(map(int, input().split()))))",
    "no import at all": "n = int(input()); print(reduce(lambda x, y: x + y, map(int, input().split())))",
    "exec": "input()\nexec('print(sum(map(int, input().split())))')",
    "blank lines and spaces": "input(); print(); print(' ', sum(map(int, input().split())), '  '); print()",
    "silence": """
import os, sys
sys.stderr = open(os.devnull, "w")
print("hidden", file=sys.stderr)
input(); print(sum(map(int, input().split())))
""",
}

# These write files: not to be had at the lowest tier, where nothing tells one path from another.
WITH_FILES = {
    "a file of one's own": """
input()
with open("numbers.txt", "w") as f: f.write(input())
print(sum(map(int, open("numbers.txt").read().split())))
""",
    "temporary files": """
import os, tempfile
with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as f:
    input(); f.write(input()); f.seek(0)
    open(os.path.join(folder, "x"), "w").close()
    print(sum(map(int, f.read().split())))
""",
    "moves a file to another folder": """
import os, shutil
os.makedirs("a/b"); os.mkdir("c")
with open("a/b/x", "w") as f: f.write(input() and input())
os.rename("a/b/x", "c/y"); shutil.move("c/y", "z"); os.rename("a/b", "c/b")
print(sum(map(int, open("z").read().split())))
""",
    "a module of one's own": """
open("helper.py", "w").write("def total(x): return sum(x)")
import helper
input(); print(helper.total(map(int, input().split())))
""",
}
