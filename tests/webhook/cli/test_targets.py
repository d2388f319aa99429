from __future__ import annotations

import pytest

from engine.errors import StowplanError
from webhook.cli.targets import target_of


@pytest.mark.parametrize(
    ("written", "read", "plural"),
    [
        ("po/web-0", "pod `web-0`", "pods"),
        ("deploy/web", "Deployment `web`", "deployments"),
        ("StatefulSets.apps/db", "StatefulSet `db`", "statefulsets"),
        ("cj.v1.batch/backup", "CronJob `backup`", "cronjobs"),
    ],
)
def test_types_have_the_names_that_kubectl_takes(written: str, read: str, plural: str) -> None:
    target = target_of(written)
    assert (str(target), target.plural) == (read, plural)


@pytest.mark.parametrize("written", ["web", "/web", "deploy/", "deploy/web/0"])
def test_a_type_and_a_name_are_needed(written: str) -> None:
    with pytest.raises(StowplanError, match="expected TYPE/NAME"):
        target_of(written)


def test_a_type_that_makes_no_pods_is_refused() -> None:
    with pytest.raises(StowplanError, match=r"`deploy\.batch` makes no pods\nhint: the types are"):
        target_of("deploy.batch/web")
