"""The errors a user can see: one line that names the thing, the fact and the way out."""


class TilewrightError(Exception):
    """Unusable input or wrong usage; the message is the whole story and fits one line."""


class TargetError(TilewrightError):
    """A target description that is unknown, unreadable or contradicts itself."""


class ModelError(TilewrightError):
    """A model file that cannot be read or holds something that cannot be compiled."""


class PlacementError(TilewrightError):
    """A demand on placement (`--no-fallback`, `--place`) that the target cannot meet."""


class MemoryLimitError(TilewrightError):
    """A plan that does not fit the memory the target describes."""


class ArtifactError(TilewrightError):
    """An artifact that cannot be written, read or run as asked."""


class ProfileError(TilewrightError):
    """Measurements that cannot be made or read, or that are of another model."""


class SimulatorFault(TilewrightError):  # noqa: N818
    """A command stream the NPU refuses: which instruction, which field, why."""


class VerificationError(TilewrightError):
    """An artifact whose results are not the model's: a fault of ours, not of the input."""
