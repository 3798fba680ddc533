"""NumPy's functions of matrices, each run in a context of its own.

They tell NumPy by ``np.errstate`` to raise ``LinAlgError`` where LAPACK finds no answer. Ctrl-C in
the midst of that would leave the thread so told: any invalid number would raise it from then on.
"""

from __future__ import annotations

import numpy as np

from odyssey.quiet import apart

cholesky = apart(np.linalg.cholesky)
det = apart(np.linalg.det)
eig = apart(np.linalg.eig)
eigh = apart(np.linalg.eigh)
eigvals = apart(np.linalg.eigvals)
eigvalsh = apart(np.linalg.eigvalsh)
inv = apart(np.linalg.inv)
lstsq = apart(np.linalg.lstsq)
matrix_rank = apart(np.linalg.matrix_rank)
pinv = apart(np.linalg.pinv)
qr = apart(np.linalg.qr)
slogdet = apart(np.linalg.slogdet)
solve = apart(np.linalg.solve)
svd = apart(np.linalg.svd)
