"""Which program a response commits to."""

from __future__ import annotations

import time

import pytest

from rlbhpc.verify.code.programs import find_program

F = "def f(x):\n    return x"


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (f"Here:\n```python\n{F}\n```\nDone.", F),
        (f"```py\n{F}\n```", F),
        (f"```\n{F}\n```", F),
        (f"```Python3\n{F}\n```", F),
        # The prompt has opened the fence.
        (f"{F}\n```\nThat works.", F),
        (f"{F}\n```\nFor example:\n```python\nprint(f(1))\n```", F),
        # A base model that just goes on, and one whose stop string was cut off.
        (F, F),
        # No closing fence: the response was cut, or the model forgot it.
        (f"So:\n```python\n{F}", F),
        # The last committed program counts.
        (f"```python\ndef f(x):\n    return 0\n```\nWait, no.\n```python\n{F}\n```", F),
        # An example of use, of output or of a shell is not the program.
        (f"```python\n{F}\n```\nUse:\n```python\nprint(f(2))\n```\n```\n2\n```", F),
        (f"```bash\npip install x\n```\n```python\n{F}\n```\n```text\nf(1) = 1\n```", F),
        (f"```\n1 2 3\n```\n```python\n{F}\n```", F),
        # Thoughts.
        (f"<think>```python\ndef f(x): pass\n```</think>```python\n{F}\n```", F),
        (f"def f(x): maybe</think>\n```python\n{F}\n```", F),
        (f"<think>\n```python\n{F}\n```\nand then", ""),
        (f"<think>x</think><answer>\n```python\n{F}\n```\n</answer>", F),
        (f"<answer>{F}</answer>", F),
        # Fences inside a list are indented, by blanks or a tab, and so is what they hold.
        ("1. So:\n   ```python\n   x = 1\n   ```", "x = 1"),
        ("* So:\n\t```python\n\tif x:\n\t    y\n\n\tz\n\t```", "if x:\n    y\n\nz"),
        ("1. So:\n   ```python\n  x = 1\n y = 2\nz = 3\n   ```", "x = 1\ny = 2\nz = 3"),
        ("- a\n  - b\n    ```py\n    def f(x):\n        return x\n    ```", F),
        # Indented as a whole.
        ("```python\n    def f(x):\n        return x\n```", F),
        # The body of a function whose head stands in the prompt stays as it is.
        ("    return x", "    return x"),
        ("```python\n    return x\n```", "    return x"),
        # A fence behind a sentence, of tildes, in a quotation; marks of other kinds.
        (f"Here is the code: ```python\n{F}\n```", F),
        (f"~~~python\n{F}\n~~~", F),
        ("> ```python\n> def f(x):\n>     return x\n> ```", F),
        (f"[PYTHON]\n{F}\n[/PYTHON]\nDone.", F),
        (f"<code>\n{F}\n</code>", F),
        (f"\\begin{{lstlisting}}[language=Python]\n{F}\n\\end{{lstlisting}}", F),
        # A fence within a docstring ends nothing.
        (
            '```python\ndef f(x):\n    """\n    ```\n    f(1)\n    ```\n    """\n```',
            'def f(x):\n    """\n    ```\n    f(1)\n    ```\n    """',
        ),
        # A function without a def.
        ("```python\nf = lambda x: x\n```\n```python\nprint(f(3))\n```", "f = lambda x: x"),
        # A byte-order mark, of the response or of the program.
        (f"\ufeff```python\n\ufeff{F}\n```", F),
        (f"\ufeff{F}", F),
        # Nothing.
        ("", ""),
        ("   \n ", ""),
        ("```python\n```", ""),
        ("```json\n{}\n```", ""),
        # Prose alone is no program.
        ("I cannot solve this.", ""),
        ("The answer is 42, since f(6) = 42.", ""),
        ("For each element:\n\n1. Add it (if it is positive).\n2. Print the sum.", ""),
        ("Let n be given.\nfrom this it follows\nimport of the goods: none\nf(n) = n(n+1)/2", ""),
        # Whatever a program may consist of is one.
        ("print(sum(map(int, input().split())))", "print(sum(map(int, input().split())))"),
        (
            "n, *a = map(int, open(0).read().split()); print(n)",
            "n, *a = map(int, open(0).read().split()); print(n)",
        ),
        ("    return sorted(x)", "    return sorted(x)"),
        ("    x += 1\n    y[0].z = x", "    x += 1\n    y[0].z = x"),
        ("import sys", "import sys"),
        ("exec(input())", "exec(input())"),
        ("[print(x) for x in open(0)]", "[print(x) for x in open(0)]"),
        ("1 and print(2)", "1 and print(2)"),
        ("sys.stdout.write(str(1))", "sys.stdout.write(str(1))"),
        ("for line in open(0): print(line)", "for line in open(0): print(line)"),
    ],
)
def test_program(response: str, expected: str) -> None:
    assert find_program(response, "f") == expected


def test_without_an_entry_the_last_python_block_counts() -> None:
    response = "```python\nprint(1)\n```\n```python\nprint(2)\n```\nOutput:\n```\n2\n```"
    assert find_program(response) == "print(2)"
    assert find_program(f"```python\n{F}\n```\n```python\nprint(f(1))\n```") == "print(f(1))"
    assert find_program(response + "\n```python\n# Input: 3\n# Output: 6\n```") == "print(2)"


def test_time_is_linear() -> None:
    start = time.process_time()
    for response in (
        "```\n" * 300_000,
        "`" * 10**6,
        "<think>" * 10**5,
        "def f" * 200_000,
        "\n" * 10**6,
        " " * 10**6,
        "x" * 10**6,
        "a," * 500_000,
        "f(" * 500_000,
        "for x" * 200_000,
        "print " * 200_000,
        "a ```py" * 200_000,
        "~~~" * 300_000,
        "> ```\n" * 200_000,
    ):
        find_program(response, "f")
    # A quadratic scan of these takes hours.
    assert time.process_time() - start < 30
