from __future__ import annotations

from collections.abc import Iterator

import pytest
from product import Product


@pytest.fixture
def pinchpoint(tmp_path) -> Iterator[Product]:
    product = Product(tmp_path)
    yield product
    product.close()
