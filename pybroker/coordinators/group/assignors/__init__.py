"""The assignors of consumer groups (KIP-848): who reads which partition, decided by the broker.

Owns: which assignors there are.  The first is what a group gets whose members name none.

They go by ids where Kafka goes by hash order. A test that asks Kafka hands it the members in our order, and topic ids
that its hash sets keep in order. They are generators that pause often.

Counterpart in Kafka: the classes that ``group.consumer.assignors`` names.
"""

from pybroker.coordinators.group.assignors.range import RangeAssignor
from pybroker.coordinators.group.assignors.spec import Assignor, GroupSpec, MemberSubscription, TopicDescriber
from pybroker.coordinators.group.assignors.uniform import UniformAssignor

ASSIGNORS: tuple[Assignor, ...] = (UniformAssignor(), RangeAssignor())

__all__ = ["ASSIGNORS", "Assignor", "GroupSpec", "MemberSubscription", "TopicDescriber"]
