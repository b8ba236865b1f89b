"""Under the name that programs for tf.keras import: lockstep.keras."""
from lockstep.keras import *  # noqa: F401,F403
from lockstep.keras import DistributedOptimizer, PartialDistributedOptimizer, callbacks, elastic, load_model  # noqa: F401
