"""Score: what a fusion is predicted to save on a device, from a cost model that can say no."""

from fusion_cli.devices.known import load_profile, profile_id
from fusion_cli.devices.profile import DeviceProfile, read_profile
from fusion_cli.score.assumed_sizes import default_sizes
from fusion_cli.score.baseline import Baseline
from fusion_cli.score.forecast import forecasts
from fusion_cli.score.prediction import score_region

__all__ = [
    "Baseline",
    "DeviceProfile",
    "default_sizes",
    "forecasts",
    "load_profile",
    "profile_id",
    "read_profile",
    "score_region",
]
