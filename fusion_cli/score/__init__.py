"""Score: what a fusion is predicted to save on a device, from a cost model that can say no."""

from fusion_cli.score.baseline import Baseline
from fusion_cli.score.potential import Potential
from fusion_cli.score.profile import DeviceProfile, load_profile, read_profile
from fusion_cli.score.region import score_region
from fusion_cli.score.sizes import default_sizes

__all__ = ["Baseline", "DeviceProfile", "Potential", "default_sizes", "load_profile", "read_profile", "score_region"]
