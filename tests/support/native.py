"""Code for tests: a function of Words, compiled by llvmlite as a loop over arrays."""

import ctypes

import llvmlite.binding as llvm
import numpy as np

from odyssey.compiler.llvm.builder import FunctionBuilder
from odyssey.compiler.llvm.declarations import declarations
from odyssey.compiler.llvm.types import MEMORY, type_code


def _machine():
    """A target machine, which the engine that it is given to then owns."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=3, jit=True
    )


def text_of(function, kinds, result):
    """A module whose function ``run`` writes what ``function`` gives for each element."""
    code = FunctionBuilder()
    words = []
    for k, kind in enumerate(kinds):
        place = code.op("ptr", f"getelementptr inbounds {MEMORY[kind]}, ptr %x{k}, i64 %i")
        words.append(code.load(kind, place.text))
    found = code.cast(function(*words), result)
    place = code.op("ptr", f"getelementptr inbounds {MEMORY[result]}, ptr %out, i64 %i")
    code.store(found, place.text)
    names = ", ".join(f"ptr noalias %x{k}" for k in range(len(kinds)))
    body = "\n".join(code.lines)
    text = f"""
define void @run({names}, ptr noalias %out, i64 %n) "prefer-vector-width"="512" {{
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %loop, label %end
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
{body}
  %next = add nuw nsw i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""
    return f"{declarations(text)}\n{text}"


def compiled(text):
    """The address of ``run``, and what keeps it alive."""
    engine = llvm.create_mcjit_compiler(_optimized(text), _machine())
    engine.finalize_object()
    return engine.get_function_address("run"), engine


def optimized(text):
    """A module after LLVM's passes."""
    return str(_optimized(text))


def _optimized(text):
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = True
    machine = _machine()
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def native(function, dtypes, result):
    """``run(*arrays)`` that gives an array; ``function`` takes and gives Words."""
    kinds = [type_code(d) for d in dtypes]
    address, engine = compiled(text_of(function, kinds, type_code(result)))
    entry = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(kinds) + 1), ctypes.c_int64)(address)

    def run(*arrays):
        assert engine is not None
        arrays = [np.ascontiguousarray(a, d) for a, d in zip(arrays, dtypes, strict=True)]
        out = np.empty(arrays[0].shape, result)
        entry(*[a.ctypes.data for a in arrays], out.ctypes.data, out.size)
        return out

    return run
