"""Imports of transformers without the parts that no command uses, and which take as long as all of torch.

transformers imports torch's compiler for a few decorators, distributed tensors for models on several machines, and scipy for
object detection. While it is imported here, the compiler is a placeholder, torch has no distributed part and scipy is missing,
both of which transformers supports. A placeholder that is called later imports the real object. ``import inbedder`` and
fine-tuning import everything; with ``INBEDDER_FULL_IMPORTS=1`` commands do so too, if a new release of a library needs it.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from inbedder.errors import ModelError, describe_error

FULL_IMPORTS_VARIABLE = "INBEDDER_FULL_IMPORTS"
"""Environment variable that switches this module off."""
PLACEHOLDERS = ("torch._dynamo", "lance_namespace", "lance_namespace_urllib3_client")
"""Packages that are replaced by placeholders; LanceDB imports the last two, clients of its web services."""
ABSENT = ("is_scipy_available", "is_torch_distributed_available")
"""Functions by which transformers finds out what exists."""


@contextmanager
def skip_unused_imports() -> Iterator[None]:
    """Leave out the unused parts in a block that imports transformers and loads a model, unless they are imported already.

    Yields:
        Nothing.

    Raises:
        ModelError: If the block fails to import; the message names the switch.
    """
    if PLACEHOLDERS[0] in sys.modules or os.environ.get(FULL_IMPORTS_VARIABLE):
        yield
        return
    import transformers.utils

    finder = _PlaceholderFinder()
    modules = (transformers.utils, transformers.utils.import_utils)
    functions = [(module, name, getattr(module, name)) for module in modules for name in ABSENT]
    sys.meta_path.insert(0, finder)
    for module, name, _ in functions:
        setattr(module, name, lambda: False)
    gc.disable()  # what is imported stays
    try:
        yield
    except (AttributeError, ImportError) as error:
        advice = f"Set {FULL_IMPORTS_VARIABLE}=1 to import everything."
        raise ModelError(f"A library cannot be imported in part ({describe_error(error)}). {advice}") from error
    finally:
        gc.freeze()
        gc.enable()
        for module, name, function in functions:
            setattr(module, name, function)
        sys.meta_path.remove(finder)
        for name in finder.names:
            placeholder = sys.modules.pop(name)
            parent, _, attribute = name.rpartition(".")
            if vars(sys.modules.get(parent, placeholder)).get(attribute) is placeholder:
                delattr(sys.modules[parent], attribute)


class _PlaceholderFinder(Loader):
    """An importer that finds a placeholder for each module of ``PLACEHOLDERS``."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module: a placeholder, or nothing."""
        if not any(name == package or name.startswith(f"{package}.") for package in PLACEHOLDERS):
            return None
        self.names.append(name)
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Create a placeholder."""
        return _Placeholder(spec.name)

    def exec_module(self, _module: ModuleType) -> None:
        """Execute nothing."""


class _Placeholder(ModuleType):
    """A module in which every name is a class, so that it can be part of an annotation."""

    def __getattr__(self, name: str) -> type:
        """Create a placeholder class: it returns what it decorates, and calls after the import reach the real object."""
        if name.startswith("__"):
            raise AttributeError(name)
        module_name = self.__name__
        base = Exception if name.endswith("Error") else object  # except clauses name it

        def call(called_class: type, *args: Any, **kwargs: Any) -> Any:
            if called_class is not placeholder:  # a class that inherits from it
                return base.__new__(called_class)
            if not isinstance(sys.modules.get(module_name), _Placeholder):
                return getattr(importlib.import_module(module_name), name)(*args, **kwargs)
            function = args[0] if args else None
            return function if function is not None else (lambda decorated: decorated)

        placeholder = type(name, (base,), {"__new__": call})
        setattr(self, name, placeholder)
        return placeholder
