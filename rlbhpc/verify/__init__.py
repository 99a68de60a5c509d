"""Response in, verdict out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlbhpc.verify.registry import verify as verify
    from rlbhpc.verify.running.batch import verify_many as verify_many

__all__ = ["verify", "verify_many"]


def __getattr__(name: str) -> Any:
    """Import the public names on first use: this room's modules are light one by one."""
    if name == "verify":
        from rlbhpc.verify.registry import verify

        return verify
    if name == "verify_many":
        from rlbhpc.verify.running.batch import verify_many

        return verify_many
    raise AttributeError(f"module 'rlbhpc.verify' has no attribute {name!r}")
