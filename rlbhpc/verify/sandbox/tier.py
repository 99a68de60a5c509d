"""How tightly programs are confined here, in one word for every verdict."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tier:
    """What a sandbox is made of.

    ``seccomp``: whether system calls are filtered: the floor. Without it there is no confinement.
    ``landlock``: version of the kernel's Landlock interface in use, 0 without it. ``namespaces``:
    whether programs live in namespaces and under a root of their own. ``cgroup``: whether a control
    group bounds memory and processes.
    """

    seccomp: bool = True
    landlock: int = 0
    namespaces: bool = False
    cgroup: bool = False

    @property
    def name(self) -> str:
        """Return ``T1`` … ``T4``, or ``T0-unsafe`` below the floor."""
        if not self.seccomp:
            return "T0-unsafe"
        if self.namespaces:
            return "T4" if self.cgroup else "T3"
        return "T2" if self.landlock else "T1"
