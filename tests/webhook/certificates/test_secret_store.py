from __future__ import annotations

import pytest

from tests.webhook.certificates.installed import SECRET, cluster
from webhook.certificates.secret_store import StoredSecret
from webhook.cluster.client.connection import ApiError


async def test_a_secret_that_is_missing_is_created_with_our_label() -> None:
    async with cluster() as here:
        store = here.store()
        missing = await store.read()
        assert (missing.version, missing.is_ours) == ("", True)
        written = await store.write(missing, {"ca.key": b"\x00\xff"})
        assert written == await store.read()
        assert here.secret() == {"ca.key": b"\x00\xff"}
        labels = here.server.objects("secrets")[SECRET]["metadata"]["labels"]
        assert labels == {"app.kubernetes.io/managed-by": "stowplan"}


async def test_a_change_leaves_other_entries_and_labels_alone() -> None:
    async with cluster() as here:
        here.put_secret({"ca.key": b"old", "note": b"mine"})
        store = here.store()
        await store.write(await store.read(), {"ca.key": b"new"})
        assert here.secret() == {"ca.key": b"new", "note": b"mine"}


@pytest.mark.parametrize("exists", [False, True])
async def test_of_two_writers_that_read_the_same_the_second_is_refused(*, exists: bool) -> None:
    async with cluster() as here:
        if exists:
            here.put_secret({"ca.key": b"old"})
        one, other = here.store(), here.store()
        read = await one.read(), await other.read()
        await one.write(read[0], {"ca.key": b"one"})
        with pytest.raises(ApiError) as refused:
            await other.write(read[1], {"ca.key": b"other"})
        assert refused.value.status == 409
        assert here.secret() == {"ca.key": b"one"}


@pytest.mark.parametrize(
    ("kind", "data", "ours"),
    [
        ("Opaque", {}, True),  # made by a chart, so that we need not be allowed to create any
        ("Opaque", {"ca.key": b"x"}, True),
        ("Opaque", {"password": b"x"}, False),
        ("Opaque", {"tls.crt": b"x", "tls.key": b"x"}, False),
        ("kubernetes.io/tls", {"tls.crt": b"x", "tls.key": b"x", "ca.crt": b"x"}, False),
        ("kubernetes.io/tls", {"tls.crt": b"", "tls.key": b""}, False),
        ("kubernetes.io/tls", {"ca.key": b"x"}, False),
    ],
)
async def test_whose_a_secret_is_shows_in_its_type_and_entries(
    kind: str, data: dict[str, bytes], *, ours: bool
) -> None:
    async with cluster() as here:
        here.put_secret(data, kind)
        assert (await here.store().read()).is_ours is ours


async def test_a_secret_that_cannot_be_read_is_not_taken_for_a_missing_one() -> None:
    async with cluster() as here:
        here.server.fail_next(1, 503)
        with pytest.raises(ApiError):
            await here.store().read()


def test_entries_are_not_shown() -> None:
    assert "hidden" not in repr(StoredSecret(data={"ca.key": b"hidden"}))
