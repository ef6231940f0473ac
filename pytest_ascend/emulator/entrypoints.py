"""The C sources that are generated: an entry point for each operator, and what else torch_npu wants to link."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_ascend.emulator.signature import C_TYPES, Signature

_OPERATOR = """\
API int {name}GetWorkspaceSize({arguments}uint64_t *workspace_size, void **into) {{
    emu_executor *executor = emu_executor_new({index}, {count});
    if (!executor) return emu_fail(EMU_OUT_OF_MEMORY, "emulated CANN: no host memory for {name}");
    {words}
    *workspace_size = 0;
    *into = executor;
    return EMU_OK;
}}
API int {name}(void *workspace, uint64_t size, void *executor, void *stream) {{
    (void)workspace, (void)size;
    emu_stream_drain(stream);
    return emu_run(executor);
}}
"""


def operators_source(signatures: Iterable[Signature]) -> str:
    """Return the source of libopapi.so. The order of the signatures is the order of the operators' indices."""
    return '#include "emulated.h"\n' + "\n".join(_operator(index, each) for index, each in enumerate(signatures))


def _operator(index: int, signature: Signature) -> str:
    names = [f"a{position}" for position in range(len(signature.parameters))]
    typed = list(zip(names, (C_TYPES[each.type] for each in signature.parameters), strict=True))
    return _OPERATOR.format(
        name=signature.name,
        index=index,
        count=len(names),
        arguments="".join(f"{c_type} {name}, " for name, (c_type, _) in typed),
        words="\n    ".join(f"executor->words[{i}] = {c.format(name)};" for i, (name, (_, c)) in enumerate(typed)),
    )


def missing_source(names: Iterable[str]) -> str:
    """Return functions that fail and name themselves, for all that torch_npu links against and nobody implements."""
    lines = (f'API int {name}(void) {{ return emu_missing("function", "{name}"); }}' for name in sorted(names))
    return '#include "emulated.h"\n' + "\n".join(lines) + "\n"
