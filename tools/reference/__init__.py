"""The files that are made from the table: the index, the type stubs, docs/native.md.

Run in a checkout, this writes those that are not fresh::

    python -m tools.reference
"""

from pathlib import Path

import odyssey
from odyssey.table.index import OPTIMIZERS

_ROOM = Path(odyssey.__file__).parent / "optim"
for _file in list(OPTIMIZERS):  # which the room imports, though one is gone
    if not (_ROOM / f"{_file.rpartition('.')[2]}.py").is_file():
        del OPTIMIZERS[_file]

from tools.reference.files import FILES, refresh, stale  # noqa: E402

__all__ = ["FILES", "refresh", "stale"]
