"""HTTP routes: one module for each resource, which defines `router`."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from samekind.server.routing import Route


def find_routes() -> list[Route]:
    """Import all modules of this package and return their routes, with the modules in alphabetical order."""
    modules = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [route for name in modules for route in import_module(f"{__name__}.{name}").router.routes]
