"""StreamsGroupTopologyDescriptionUpdate (key 93): a member of a streams group tells its topology in full (KIP-1331)."""

from pybroker_protocol.schema import Int8, Int16, Int32, NullableString, Request, Response, String, Struct, field


class TopologyDescriptionNode(Struct):
    name: String
    node_type: Int8
    source_topics: list[String]
    sink_topic: NullableString = field(default=None)
    stores: list[String]
    successors: list[String]


class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode
    processor: TopologyDescriptionNode


class TopologyDescriptionSubtopology(Struct):
    subtopology_id: String
    nodes: list[TopologyDescriptionNode]


class TopologyDescription(Struct):
    subtopologies: list[TopologyDescriptionSubtopology]
    global_stores: list[TopologyDescriptionGlobalStore]


class StreamsGroupTopologyDescriptionUpdateRequest(Request, key=93, versions="0", flexible="0+"):
    group_id: String
    member_id: String
    topology_epoch: Int32
    topology_description: TopologyDescription


class StreamsGroupTopologyDescriptionUpdateResponse(Response, key=93, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = field(default=None)
