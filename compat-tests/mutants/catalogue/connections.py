"""Connections, headers, the order of replies, ApiVersions."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        "api-versions-header-with-tags",
        "The header of an ApiVersions reply carries tagged fields, as those of other flexible replies do.",
        (Edit("ServedApi.__init__", "flexible and api.key != API_VERSIONS_KEY", "flexible"),),
        ("test_connections.py::test_the_header_of_an_api_versions_reply_has_no_tagged_fields",),
    ),
    Mutant(
        "api-versions-of-the-future-closes",
        "ApiVersions in a version of the future closes the connection, as any other request does.",
        (Edit("Requests._answer_unsupported_version", "error.api.key != API_VERSIONS_KEY", "error.api.key"),),
        ("test_connections.py::test_api_versions_of_the_future_is_told_in_version_0_which_ones_there_are",),
    ),
    Mutant(
        "api-versions-of-the-future-told-all",
        "The answer to ApiVersions of the future lists every API.",
        (Edit("unsupported_version", "[_entry(BY_KEY[_KEY])]", "[_entry(api) for api in APIS]"),),
        ("test_connections.py::test_api_versions_of_the_future_is_told_in_version_0_which_ones_there_are",),
    ),
    Mutant(
        "produce-announced-from-3",
        "Produce is announced from the first version that is served, so that old librdkafka gives up compression.",
        (
            Edit(
                "APIS",
                'Api(0, "Produce", (3, 13), "produce", LEADER, advertised_min=0)',
                'Api(0, "Produce", (3, 13), "produce", LEADER, advertised_min=None)',
            ),
        ),
        ("test_connections.py::test_produce_is_announced_from_0_but_served_from_3",),
    ),
    Mutant(
        "features-from-0-told-to-all",
        "Supported features that begin at 0 are shown below ApiVersions 4, whose clients cannot read them.",
        (Edit("api_versions.handle", "low > 0", "low >= 0"),),
        ("test_connections.py::test_features_that_begin_at_0_are_left_out_below_version_4",),
    ),
    Mutant(
        "features-of-no-epoch",
        "The finalized features come with epoch -1, which tells clients to ignore them.",
        (Edit("api_versions.handle", "image.epoch", "-1"),),
        ("test_connections.py::test_finalized_features_say_which_protocols_are_served",),
    ),
    Mutant(
        "telemetry-always-announced",
        "Telemetry is announced though nobody has subscribed to it, and every client begins to ask.",
        (Edit("api_versions.handle", "telemetry or api.key not in _TELEMETRY_KEYS", "telemetry is not None"),),
        ("test_connections.py::test_telemetry_is_not_announced_without_a_subscription",),
    ),
    Mutant(
        "client-software-unchecked",
        "Any client software name is taken, also one that would break logs and metrics.",
        (Edit("api_versions.handle", "_SOFTWARE.fullmatch(name)", "name"),),
        ("test_connections.py::test_a_client_software_name_has_a_form",),
    ),
    Mutant(
        "correlation-id-loses-its-sign",
        "A negative correlation id comes back as another number.",
        (
            Edit(
                "Outbox.add",
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
                "Connection._serve",
                "not stop or (replies.waiting and not self._may_overtake(view, pos, stop))",
                "not stop",
            ),
            Edit(
                "Connection.reply",
                "self._replies.waiting",
                "self.closed",
            ),
        ),
        ("test_connections.py::test_no_reply_overtakes_one_that_waits",),
    ),
    Mutant(
        "frame-length-believed",
        "A length above socket.request.max.bytes is believed, and the connection waits for that many bytes.",
        (Edit("Framing.end_of_frame", "not 0 <= size <= self.frame_bytes_max", "size < 0"),),
        ("test_connections.py::test_a_length_that_no_frame_can_have_closes_the_connection[104857601]",),
    ),
    Mutant(
        "bytes-behind-the-request-refused",
        "A request with bytes behind its last field is refused; librdkafka's Metadata for all topics has three.",
        (Edit("Requests.serve", "end > len(frame)", "end != len(frame)"),),
        ("test_connections.py::test_bytes_behind_the_last_field_are_ignored",),
    ),
    Mutant(
        "unknown-tags-refused",
        "A tagged field that this version does not know closes the connection.",
        (Edit("skip_counted_tagged_fields", "pos > len(data)", "length"),),
        ("test_connections.py::test_tagged_fields_that_nobody_knows_are_skipped",),
    ),
    Mutant(
        "acks-0-answered",
        "Produce without acknowledgements is answered, and every later reply is taken for that of another request.",
        (
            Edit(
                "ProduceAppends.answer",
                """
                if self.required_acks:
                    return self.response
                """,
                "return self.response",
            ),
        ),
        ("test_connections.py::test_a_request_without_acks_is_not_answered",),
    ),
    Mutant(
        "acks-0-error-swallowed",
        "An error of a Produce without acknowledgements is passed over, and the client goes on losing records.",
        (
            Edit(
                "ProduceAppends.answer",
                """
                if (reason := reason_to_close(self.response)) is not None:
                    raise CloseConnection(reason)
                """,
                "",
            ),
        ),
        ("test_connections.py::test_an_error_without_acks_closes_the_connection",),
    ),
)
