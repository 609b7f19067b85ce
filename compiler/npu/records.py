"""What a tuning database knows of a region."""

from __future__ import annotations

from pathlib import Path

from tilewright.schedules.npu.choices import workload_digest
from tilewright.schedules.tuning_db import TuningDb
from tilewright.targets.description import Npu
from tilewright.targets.operators import Region


def best_choices(db: Path, region: Region, npu: Npu) -> str | None:
    """Those of the best record of this region, NPU and version; None where there is none."""
    with TuningDb(db) as records:
        found = records.best(workload_digest(region), npu.digest.hex())
        return found.choices if found is not None else None
