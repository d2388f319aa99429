"""ImageLocality: prefer nodes that hold the images of a pod already.

Source: pkg/scheduler/framework/plugins/imagelocality/image_locality.go. Each image that a node
holds counts for its size times the share of all nodes that hold it, so that not all pods of an
image go to the one node that pulled it first. The share is of the whole cluster. Images of volumes
count for their sizes. From Kubernetes 1.37 on, each raises the maximum that counts as much as a
container does.

Names are compared as they are written, a missing tag being `latest`: `nginx` is not
`docker.io/library/nginx`. The kubelet reports 50 images unless told otherwise, the largest first,
so a node may hold an image that it does not name. If a node lists a name twice, the first size
counts, as in the scheduler.

Differences from upstream:

- **Sizes**: each node has its own size of an image. Upstream uses the size on the node that it saw
  first for all nodes.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from engine.model.kubernetes_version import VOLUMES_ADD
from engine.model.pod import Pod
from engine.model.rule_outcomes import RuleInput, RuleInputs, Unit
from engine.plugins.base import MAX_SCORE, Cycle, NoArgs, Plugin, Score, Scores
from engine.plugins.lib.arithmetic import trunc_div
from engine.view import Domain, image_column

_MIB = 2**20
_LEAST = 23 * _MIB
"""Smaller images do not count: they are pulled in no time."""

_MOST_PER_IMAGE = 1000 * _MIB


class ImageLocalityScore(Score):
    """Scores nodes by how many bytes of images need not be pulled."""

    def score(self, cycle: Cycle) -> Scores:
        """Return 0 up to 23 MiB, MAX_SCORE from 1000 MiB for each image on that adds to it."""
        pod, view = cycle.pod, cycle.view
        present = np.zeros(len(view), np.int64)
        for name, times in Counter(map(normalized_image_name, _images(pod))).items():
            sizes, share = image_column(view, name)
            present += (sizes * share).astype(np.int64) * times
        adding = _images(pod) if view.kubernetes >= VOLUMES_ADD else pod.images
        most = _MOST_PER_IMAGE * len(adding)
        # In this order: of no containers, whose most is below the least, the least remains.
        counted = np.maximum(np.minimum(present, most), _LEAST)
        return Scores(trunc_div((counted - _LEAST) * MAX_SCORE, most - _LEAST))

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        inputs = []
        for name in dict.fromkeys(map(normalized_image_name, _images(cycle.pod))):
            sizes, share = image_column(cycle.view, name)
            size = int(sizes[row])
            if size:
                percent = float(100 * share)
                inputs.append(RuleInput(name, size, Unit.BYTES, percent_of_nodes=percent))
            else:
                inputs.append(RuleInput(name, text="absent"))
        return tuple(inputs)


def _images(pod: Pod) -> tuple[str, ...]:
    return (*pod.images, *pod.volume_images)


def normalized_image_name(name: str) -> str:
    """Return the name of an image with its tag, `latest` where none is written.

    What follows the last colon is a tag or digest unless a slash comes after it: then the colon is
    that of a registry's port.
    """
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


PLUGIN = Plugin(args=NoArgs, score=lambda _: ImageLocalityScore(), reads=(Domain.NODES,))
