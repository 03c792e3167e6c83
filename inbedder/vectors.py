"""Arrays of vectors that know something of themselves as a whole."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np


class KnowingVectors(np.ndarray[Any, np.dtype[np.float32]]):
    """Vectors, float32, with facts that hold for the whole array alone.

    Whatever is derived from it (a slice, a copy, a product, a pickle) knows nothing: its facts are None.
    """

    facts: ClassVar[tuple[str, ...]] = ()
    """Names of the attributes that are facts."""

    def __array_finalize__(self, source: Any) -> None:
        for name in self.facts:
            setattr(self, name, None)

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__()
