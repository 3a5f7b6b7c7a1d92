"""What other projects' tests use."""

from respserver.testing.bounds import check_store_bounds, check_store_expiry
from respserver.testing.checks import check_store

__all__ = ["check_store", "check_store_bounds", "check_store_expiry"]
