"""Connections, headers, the order of replies, ApiVersions."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_CONNECTION = "pybroker.net.connection"
_DISPATCH = "pybroker.net.dispatch"
_API_VERSIONS = "pybroker.handlers.api_versions"
_PRODUCE = "pybroker.handlers.produce"

MUTANTS = (
    Mutant(
        "api-versions-header-with-tags",
        "The header of an ApiVersions reply carries tagged fields, as those of other flexible replies do.",
        (
            Edit(
                _DISPATCH,
                "self.flexible_reply = flexible and api.key != API_VERSIONS_KEY",
                "self.flexible_reply = flexible",
            ),
        ),
        ("test_connections.py::test_the_header_of_an_api_versions_reply_has_no_tagged_fields",),
    ),
    Mutant(
        "api-versions-of-the-future-closes",
        "ApiVersions in a version of the future closes the connection, as any other request does.",
        (
            Edit(
                _CONNECTION,
                "        if error.api.key != API_VERSIONS_KEY:\n            self.refuse",
                "        if error.api.key:\n            self.refuse",
            ),
        ),
        ("test_connections.py::test_api_versions_of_the_future_is_told_in_version_0_which_ones_there_are",),
    ),
    Mutant(
        "api-versions-of-the-future-told-all",
        "The answer to ApiVersions of the future lists every API.",
        (Edit(_API_VERSIONS, "api_keys=[_entry(BY_KEY[_KEY])]", "api_keys=[_entry(api) for api in APIS]"),),
        ("test_connections.py::test_api_versions_of_the_future_is_told_in_version_0_which_ones_there_are",),
    ),
    Mutant(
        "produce-announced-from-3",
        "Produce is announced from the first version that is served, so that old librdkafka gives up compression.",
        (Edit("pybroker.apis", "advertised_min=0)", "advertised_min=None)"),),
        ("test_connections.py::test_produce_is_announced_from_0_but_served_from_3",),
    ),
    Mutant(
        "features-from-0-told-to-all",
        "Supported features that begin at 0 are shown below ApiVersions 4, whose clients cannot read them.",
        (
            Edit(
                _API_VERSIONS,
                "if low > 0 or ctx.api_version >= _FEATURES_FROM_ZERO",
                "if low >= 0 or ctx.api_version >= _FEATURES_FROM_ZERO",
            ),
        ),
        ("test_connections.py::test_features_that_begin_at_0_are_left_out_below_version_4",),
    ),
    Mutant(
        "features-of-no-epoch",
        "The finalized features come with epoch -1, which tells clients to ignore them.",
        (Edit(_API_VERSIONS, "finalized_features_epoch=image.epoch", "finalized_features_epoch=-1"),),
        ("test_connections.py::test_finalized_features_say_which_protocols_are_served",),
    ),
    Mutant(
        "telemetry-always-announced",
        "Telemetry is announced though nobody has subscribed to it, and every client begins to ask.",
        (Edit(_API_VERSIONS, "if telemetry or api.key not in _TELEMETRY_KEYS", "if telemetry is not None"),),
        ("test_connections.py::test_telemetry_is_not_announced_without_a_subscription",),
    ),
    Mutant(
        "client-software-unchecked",
        "Any client software name is taken, also one that would break logs and metrics.",
        (Edit(_API_VERSIONS, "if not _SOFTWARE.fullmatch(name) or", "if not name or"),),
        ("test_connections.py::test_a_client_software_name_has_a_form",),
    ),
    Mutant(
        "correlation-id-loses-its-sign",
        "A negative correlation id comes back as another number.",
        (
            Edit(
                _CONNECTION,
                "_REPLY_HEADER(size + 4, correlation_id)",
                "_REPLY_HEADER(size + 4, correlation_id & 0x7FFFFFFF)",
            ),
        ),
        ("test_connections.py::test_a_reply_carries_the_correlation_id_of_its_request",),
    ),
    Mutant(
        "reply-overtakes-a-parked-one",
        "Requests behind one that waits are served and answered at once.",
        (
            Edit(
                _CONNECTION,
                "if stop > end or (self._waiting and not self._may_overtake(view, pos, size)):",
                "if stop > end:",
            ),
            Edit(
                _CONNECTION,
                "        if self._waiting:\n            reply = _WaitingReply(self, api, correlation_id, None, 0)",
                "        if self.closed:\n            reply = _WaitingReply(self, api, correlation_id, None, 0)",
            ),
        ),
        ("test_connections.py::test_no_reply_overtakes_one_that_waits",),
    ),
    Mutant(
        "frame-length-believed",
        "A length above socket.request.max.bytes is believed, and the connection waits for that many bytes.",
        (Edit(_CONNECTION, "if not 0 <= size <= frame_bytes_max:", "if size < 0:"),),
        ("test_connections.py::test_a_length_that_no_frame_can_have_closes_the_connection[104857601]",),
    ),
    Mutant(
        "bytes-behind-the-request-refused",
        "A request with bytes behind its last field is refused; librdkafka's Metadata for all topics has three.",
        (Edit(_CONNECTION, "            if end > len(frame):", "            if end != len(frame):"),),
        ("test_connections.py::test_bytes_behind_the_last_field_are_ignored",),
    ),
    Mutant(
        "unknown-tags-refused",
        "A tagged field that this version does not know closes the connection.",
        (
            Edit(
                "pybroker_protocol.primitives",
                "        pos += length\n        if pos > len(data):",
                "        pos += length\n        if length:",
            ),
        ),
        ("test_connections.py::test_tagged_fields_that_nobody_knows_are_skipped",),
    ),
    Mutant(
        "acks-0-answered",
        "Produce without acknowledgements is answered, and every later reply is taken for that of another request.",
        (
            Edit(
                _PRODUCE,
                "            if acks:\n                return self.response\n",
                "            return self.response\n",
            ),
        ),
        ("test_connections.py::test_a_request_without_acks_is_not_answered",),
    ),
    Mutant(
        "acks-0-error-swallowed",
        "An error of a Produce without acknowledgements is passed over, and the client goes on losing records.",
        (
            Edit(
                _PRODUCE,
                "            if (reason := reason_to_close(self.response)) is not None:\n"
                "                raise CloseConnection(reason)\n",
                "",
            ),
        ),
        ("test_connections.py::test_an_error_without_acks_closes_the_connection",),
    ),
)
