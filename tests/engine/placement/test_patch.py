from __future__ import annotations

import pytest

from engine.errors import PatchError
from engine.placement.patch import ensure_applies
from tests.engine.placement.cluster import Json


@pytest.mark.parametrize("path", ["/spec/affinity/nodeAffinity", "/spec/terms/3", "spec", "/a~2"])
def test_operations_that_do_not_apply_are_refused(path: str) -> None:
    document: Json = {"spec": {"terms": []}}
    with pytest.raises(PatchError, match="does not apply"):
        ensure_applies([{"op": "add", "path": path, "value": 1}], document)
