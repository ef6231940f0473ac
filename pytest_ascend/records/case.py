"""What is tested: a case (one subject, one property, one dtype), and the stack on which it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import msgspec

from pytest_ascend.records import LEVELS
from pytest_ascend.records.bounds import one_of

#: Records a measurement of a case by its name, or a series; the fixture ``ascend_measure`` returns one.
Measure: TypeAlias = Callable[[str, float | Sequence[float]], None]
#: The property that a second call gives equal bits. It has no results of its own: its samples are those of "forward".
REPEAT = "repeat"
#: The properties tested in processes that enable determinism before their first operator.
EQUAL_BITS = (REPEAT, "determinism")
#: Suite and property of a user's test that names no case.
OWN, OWN_TEST = "user", "test"
#: The reason why a run of --ascend-model is a subset.
OWN_MODEL = "a model of your own"
#: Seed of the generated calls of the cases ``sweep``; part of the manifest, because it determines the calls.
SWEEP_SEED = 1
#: Version of the generator: another one makes other calls from the same seed.
SWEEP_GENERATION = 15

Level: TypeAlias = Annotated[str, one_of(*LEVELS)]


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """One thing that a device either does as PyTorch promises, or does not.

    ``suite`` is the bundled suite ("ops", "models", ...) or "user"; ``subject`` the operator or model; ``property``
    what is tested ("forward", "backward", ...); ``dtype`` torch's name without the prefix, or "" if no dtype applies;
    ``family`` groups subjects on the page; ``level`` is the lowest level that runs the case. ``id`` is derived from the
    others: the name by which manifests, run logs and pages know the case, stable over versions and machines.
    """

    id: str = ""
    suite: str
    subject: str
    property: str
    dtype: str = ""
    family: str = ""
    level: Level = "smoke"

    def __post_init__(self) -> None:
        """Derive the ID. Raises ValueError if the given one does not match the other fields."""
        found = "/".join(part for part in (self.suite, self.subject, self.property, self.dtype) if part)
        if self.id not in ("", found):
            raise ValueError(f".id: expected {found!r} from the other fields, got {self.id[:200]!r}")
        msgspec.structs.force_setattr(self, "id", found)

    def but(self, **changes: Any) -> Case:
        """Return the case with fields, and therefore its ID, changed."""
        return msgspec.structs.replace(self, id="", **changes)

    def is_in(self, level: str) -> bool:
        """Return whether a run at ``level`` has to run this case."""
        return LEVELS.index(self.level) <= LEVELS.index(level)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """The combination under test. An empty string means that a version is not known.

    ``device`` is the kind ("npu", "cuda", "cpu"); ``emulated`` is true if no hardware computed anything. The parts in
    :data:`OPTIONAL` are empty if they are not installed, and in logs from before they were recorded.
    """

    device: str
    emulated: bool
    chip: str = ""
    driver: str = ""
    firmware: str = ""
    cann: str = ""
    torch: str = ""
    torch_npu: str = ""
    torch_npu_commit: str = ""
    nnal: str = ""
    triton_ascend: str = ""
    vllm_ascend: str = ""
    sgl_kernel_npu: str = ""
    python: str = ""
    os: str = ""
    host: str = ""
    pytest_ascend: str = ""


#: Parts without which a stack works: ATB (of NNAL), Triton's compiler, and libraries of operators. They compute
#: results where they are installed, so a stack with another version of one is another stack.
OPTIONAL = ("nnal", "triton_ascend", "vllm_ascend", "sgl_kernel_npu")
