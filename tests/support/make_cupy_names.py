"""Write ``cupy_names.json``: functions, methods and keywords of the installed CuPy.

The stand-in for CuPy (``standin.py``) refuses what is not in the list. CuPy's modules are imported
without a GPU: ``python tests/support/make_cupy_names.py``.
"""

import inspect
import json
import re
from importlib import import_module
from pathlib import Path

import cupy
import numpy as np

MODULES = (
    *("cupy", "cupy.linalg", "cupy.fft", "cupy.lib.stride_tricks"),
    "cupyx.scipy.special",
)
HEAD = re.compile(r"^_?\w+\.(\w+)\(self(?:, )?(.*?)\)(?: ->.*)?$", re.MULTILINE)


def of_function(function):
    """Return "ufunc", or the parameters as text; None if CuPy does not tell them."""
    if isinstance(function, cupy.ufunc):
        return "ufunc"
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    return str(
        signature.replace(
            parameters=[
                p.replace(
                    annotation=inspect.Parameter.empty,
                    default=p.empty if p.default is p.empty else None,
                )
                for p in signature.parameters.values()
            ],
            return_annotation=inspect.Signature.empty,
        )
    )


def of_method(name, method):
    """Return the parameters of a method by the first line of its docstring; None without one."""
    found = HEAD.match(getattr(method, "__doc__", None) or "")
    if found is None:
        return None
    parts = [part.strip() for part in found[2].split(",") if part.strip()]
    parts = [part.split("=")[0].split()[-1] + ("=None" if "=" in part else "") for part in parts]
    return f"({', '.join(parts)})"


def elements():
    """An array of CuPy's in host memory: without a GPU it shows what calls refuse at once."""
    memory = np.zeros(6)
    block = cupy.cuda.UnownedMemory(memory.ctypes.data, memory.nbytes, memory, 0)
    return cupy.ndarray((2, 3), np.float64, cupy.cuda.MemoryPointer(block, 0))


KEYWORDS = ("out", "dtype", "casting", "where", "order", "subok", "signature", "axis", "keepdims")
METHODS = {
    "reduce": (),
    "accumulate": (),
    "reduceat": ([0, 1],),
    "at": ((0,), 1.0),
}


def of_ufuncs(ufuncs):
    """Return the keywords of ufuncs, and by each of their methods the ufuncs that have it."""
    x = elements()
    keywords = []
    for name in KEYWORDS:
        try:
            cupy.add(x, x, **{name: "none"})
        except Exception as error:  # of the missing driver, unless the keyword is refused
            if not str(error).startswith("Wrong arguments"):
                keywords.append(name)
    methods = {method: [] for method in METHODS}
    for method, rest in METHODS.items():
        for name in ufuncs:
            try:
                getattr(getattr(cupy, name), method)(x, *rest)
            except NotImplementedError:
                continue
            except Exception:  # of the missing driver
                methods[method].append(name)
    return keywords, methods


def main():
    modules = {}
    for path in MODULES:
        module = import_module(path)
        names = [name for name in dir(module) if not name.startswith("_")]
        modules[path] = {
            name: of_function(value)
            for name in names
            if callable(value := getattr(module, name)) and not isinstance(value, type)
        }
    methods, attributes = {}, []
    for name in dir(cupy.ndarray):
        member = getattr(cupy.ndarray, name)
        if callable(member):
            methods[name] = of_method(name, member)
        else:
            attributes.append(name)
    known = modules["cupy"]
    keywords, of_ufunc = of_ufuncs([name for name in known if known[name] == "ufunc"])
    found = {
        "version": cupy.__version__,
        "ufunc_keywords": keywords,
        "ufunc_methods": of_ufunc,
        "modules": modules,
        "methods": methods,
        "attributes": attributes,
    }
    path = Path(__file__).with_name("cupy_names.json")
    path.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
