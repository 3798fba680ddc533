"""PTX by LLVM: from the text of a CUDA module to the assembly that CUDA drivers load.

llvmlite alone does it, without a device or a toolkit. PTX is kept by the disk cache, as machine
code is.
"""

from __future__ import annotations

from odyssey.checks import format_value
from odyssey.compiler.machine import disk_cache
from odyssey.errors import OdysseyError, SettingError
from odyssey.kernels.llvm_locks import COMPILER_LOCK

__all__ = ["ARCHITECTURES", "emit_ptx"]

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90")
"""Architectures to generate PTX for. A driver compiles PTX for any later device too."""

# Every driver since CUDA 12.0 loads this version.
_PTX_VERSION = "ptx80"
# Optimization level; loops are unrolled, and not vectorized.
_LEVEL = 3


def emit_ptx(text: str, architecture: str = "sm_80") -> str:
    """Return the PTX of a module, from the disk cache if it has it.

    Args:
        text: LLVM IR for NVPTX.
        architecture: One of ``ARCHITECTURES``.

    Raises:
        SettingError: there is no such architecture.
        OdysseyError: llvmlite is not installed, cannot generate PTX, or refuses the text.
    """
    if architecture not in ARCHITECTURES:
        raise SettingError(
            f"cuda: architecture={format_value(architecture)} is none of {list(ARCHITECTURES)}; "
            "pass the latest that is not newer than the device"
        )
    try:
        import llvmlite
        from llvmlite import binding as llvm
    except ImportError as error:
        raise OdysseyError(
            f"cuda: PTX cannot be generated: llvmlite cannot be imported ({error}); "
            "`pip install llvmlite`"
        ) from error
    version = ".".join(map(str, llvm.llvm_version_info))
    recipe = ["ptx", llvmlite.__version__, version, architecture, _PTX_VERSION, f"O{_LEVEL}"]
    key = disk_cache.entry_key([*recipe, text])
    with COMPILER_LOCK:
        stored = disk_cache.read_entry(key)
        if stored is not None:
            return stored.decode()
        found = _generate_ptx(text, architecture)
        disk_cache.write_entry(key, found.encode())
    return found


def _generate_ptx(text: str, architecture: str) -> str:
    from llvmlite import binding as llvm

    try:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        target = llvm.Target.from_triple("nvptx64-nvidia-cuda")
    except RuntimeError as error:
        raise OdysseyError(f"cuda: this llvmlite has no PTX target: {error}") from error
    machine = target.create_target_machine(
        cpu=architecture, features=f"+{_PTX_VERSION}", opt=_LEVEL
    )
    try:
        module = llvm.parse_assembly(text, llvm.create_context())
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise OdysseyError(f"cuda: LLVM refuses the program: {error}") from error
    with module:
        options = llvm.create_pipeline_tuning_options(speed_level=_LEVEL)
        options.loop_vectorization = options.slp_vectorization = False
        options.loop_unrolling = True
        builder = llvm.create_pass_builder(machine, options)
        passes = builder.getModulePassManager()
        try:
            passes.run(module, builder)
        finally:
            # llvmlite's own ``close`` finds the empty ``_dispose`` of a parent, and leaks 100 kB.
            llvm.newpassmanagers.NewPassManager._dispose(passes)
            passes.detach()
        found: str = machine.emit_assembly(module)
    return found
