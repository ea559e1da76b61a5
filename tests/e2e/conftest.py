from __future__ import annotations

import pytest
from product import Product


@pytest.fixture
def pinchpoint(tmp_path) -> Product:
    return Product(tmp_path)
