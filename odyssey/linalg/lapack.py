"""NumPy's linear algebra functions, each run in a separate ``contextvars`` context.

They set ``np.errstate`` to raise ``LinAlgError`` if LAPACK fails. A KeyboardInterrupt inside would
leave that setting in the thread, and later invalid values would raise too.
"""

from __future__ import annotations

import numpy as np

from odyssey.floating_point_errors import isolate_errstate

cholesky = isolate_errstate(np.linalg.cholesky)
det = isolate_errstate(np.linalg.det)
eig = isolate_errstate(np.linalg.eig)
eigh = isolate_errstate(np.linalg.eigh)
eigvals = isolate_errstate(np.linalg.eigvals)
eigvalsh = isolate_errstate(np.linalg.eigvalsh)
inv = isolate_errstate(np.linalg.inv)
lstsq = isolate_errstate(np.linalg.lstsq)
matrix_rank = isolate_errstate(np.linalg.matrix_rank)
pinv = isolate_errstate(np.linalg.pinv)
qr = isolate_errstate(np.linalg.qr)
slogdet = isolate_errstate(np.linalg.slogdet)
solve = isolate_errstate(np.linalg.solve)
svd = isolate_errstate(np.linalg.svd)
