"""A ConfigMap as the kubelet mounts it: every change is one link that is pointed elsewhere."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from itertools import count
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MountedConfigMap:
    """Files `mount/NAME -> ..data/NAME`, where `..data` is a link to the folder of a version."""

    mount: Path
    versions: count[int]

    @classmethod
    def at(cls, mount: Path, **files: str) -> MountedConfigMap:
        """Mount some YAML files; keywords are their names without the ending."""
        mount.mkdir()
        mounted = cls(mount, count())
        mounted.swap(**files)
        return mounted

    def swap(self, **files: str) -> None:
        """Put these files in the place of those that were there, in the kubelet's order."""
        data, version = self.mount / "..data", self.mount / f"..2026_{next(self.versions)}"
        old = data.readlink() if data.is_symlink() else None
        version.mkdir()
        for name, text in files.items():
            (version / f"{name}.yaml").write_text(text)
        new_data = self.mount / "..data_tmp"
        new_data.symlink_to(version.name)
        new_data.replace(data)
        for name in files:
            link = self.mount / f"{name}.yaml"
            if not link.is_symlink():
                link.symlink_to(f"..data/{name}.yaml")
        for link in self.mount.glob("*.yaml"):
            if link.stem not in files:
                link.unlink()
        if old is not None:
            shutil.rmtree(self.mount / old)
