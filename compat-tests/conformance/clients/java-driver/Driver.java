// The driver (PROTOCOL.md) of Kafka's Java client; compiled against every version that has a folder beside this one.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class Driver {
    private static final String VERSION = version();
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<Integer, Endpoint> ENDPOINTS = new ConcurrentHashMap<>();
    private static final AtomicInteger HANDLES = new AtomicInteger();
    private static final PrintStream REPLIES = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false);

    /** What a handle stands for. */
    interface Endpoint {
        Object handle(JsonNode request) throws Exception;

        void close();
    }

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err); // stdout is the protocol's
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode request = JSON.readTree(line);
            threads.execute(() -> answer(request));
        }
        System.exit(0);
    }

    private static void answer(JsonNode request) {
        Map<String, Object> reply = new LinkedHashMap<>();
        reply.put("id", request.get("id").asInt());
        try {
            reply.put("result", handle(request));
        } catch (Throwable error) {
            Map<String, Object> told = new HashMap<>();
            told.put("code", code(error));
            told.put("message", inWords(error));
            reply.put("error", told);
        }
        try {
            byte[] line = JSON.writeValueAsBytes(reply);
            synchronized (REPLIES) {
                REPLIES.write(line);
                REPLIES.write('\n');
                REPLIES.flush();
            }
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    /** Of the client; the class that tells it is in another package from 4.4 on. */
    private static String version() {
        java.util.Properties found = new java.util.Properties();
        try (java.io.InputStream file = KafkaProducer.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            found.load(file);
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
        return found.getProperty("version");
    }

    private static Object handle(JsonNode request) throws Exception {
        String op = request.get("op").asText();
        switch (op) {
            case "hello":
                return Map.of("client", System.getProperty("client.name"), "version", VERSION);
            case "open_producer":
                return keep(new ProducerEndpoint(request));
            case "open_consumer":
                return keep(new ConsumerEndpoint(request));
            case "open_admin":
                return keep(new AdminEndpoint(request));
            case "close":
                ENDPOINTS.remove(request.get("on").asInt()).close();
                return null;
            default:
                return ENDPOINTS.get(request.get("on").asInt()).handle(request);
        }
    }

    private static int keep(Endpoint endpoint) {
        int handle = HANDLES.incrementAndGet();
        ENDPOINTS.put(handle, endpoint);
        return handle;
    }

    static int code(Throwable error) {
        Throwable cause = error;
        while ((cause instanceof ExecutionException || cause instanceof InvocationTargetException) && cause.getCause() != null) {
            cause = cause.getCause();
        }
        return Errors.forException(cause).code();
    }

    /** An error with what it was caused by, which alone says what is wrong with a setting. */
    static String inWords(Throwable error) {
        StringBuilder words = new StringBuilder(String.valueOf(error));
        for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause()) {
            words.append(", by ").append(cause);
        }
        return words.toString();
    }

    static IllegalArgumentException unknown(JsonNode request) {
        return new IllegalArgumentException("unknown operation " + request.get("op"));
    }

    static boolean has(JsonNode request, String field) {
        return request.hasNonNull(field);
    }

    static byte[] bytes(JsonNode node) throws java.io.IOException {
        return node == null || node.isNull() ? null : node.binaryValue();
    }

    static TopicPartition partition(JsonNode node) {
        return new TopicPartition(node.get("topic").asText(), node.get("partition").asInt());
    }

    static Map<String, Object> fields(TopicPartition partition) {
        Map<String, Object> fields = new HashMap<>();
        fields.put("topic", partition.topic());
        fields.put("partition", partition.partition());
        return fields;
    }

    static Map<TopicPartition, OffsetAndMetadata> offsets(JsonNode listed) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (JsonNode each : listed) {
            String metadata = each.path("metadata").asText("");
            offsets.put(partition(each), new OffsetAndMetadata(each.get("offset").asLong(), metadata));
        }
        return offsets;
    }

    /** Where the broker is and, if it asks, who the client is there. */
    static Properties connection(JsonNode options) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", options.get("bootstrap").asText());
        if (!has(options, "security")) {
            return settings;
        }
        JsonNode security = options.get("security");
        settings.put("security.protocol", security.get("protocol").asText());
        settings.put("ssl.truststore.type", "PEM");
        settings.put("ssl.truststore.location", security.get("ca").asText());
        if (has(security, "certificate") && VERSION.startsWith("2.")) { // no PEM without a password
            settings.put("ssl.keystore.type", "PKCS12");
            settings.put("ssl.keystore.location", security.get("key_store").asText());
            settings.put("ssl.keystore.password", security.get("key_store_password").asText());
            settings.put("ssl.key.password", security.get("key_store_password").asText());
        } else if (has(security, "certificate")) {
            settings.put("ssl.keystore.type", "PEM");
            settings.put("ssl.keystore.location", security.get("certificate").asText());
        }
        if (has(security, "mechanism")) {
            settings.put("sasl.mechanism", security.get("mechanism").asText());
            settings.put("sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required username="
                    + quoted(security.get("user").asText()) + " password=" + quoted(security.get("password").asText()) + ";");
        }
        return settings;
    }

    static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    /** Calls a method whose name or presence differs between the versions of the client. */
    static Object call(Object target, Class<?> kind, String name, Class<?>[] types, Object... arguments) throws Exception {
        return kind.getMethod(name, types).invoke(target, arguments);
    }

    static final class ProducerEndpoint implements Endpoint {
        private final KafkaProducer<byte[], byte[]> producer;

        ProducerEndpoint(JsonNode options) {
            Properties settings = connection(options);
            settings.put("key.serializer", ByteArraySerializer.class.getName());
            settings.put("value.serializer", ByteArraySerializer.class.getName());
            settings.put("acks", String.valueOf(options.get("acks").asInt()));
            settings.put("linger.ms", String.valueOf(options.get("linger_ms").asInt()));
            settings.put("max.request.size", String.valueOf(options.get("request_bytes_max").asInt()));
            if (has(options, "codec")) {
                settings.put("compression.type", options.get("codec").asText());
            }
            if (has(options, "idempotent")) {
                settings.put("enable.idempotence", String.valueOf(options.get("idempotent").asBoolean()));
            }
            if (has(options, "patience_ms")) {
                settings.put("max.block.ms", String.valueOf(options.get("patience_ms").asInt()));
            }
            if (has(options, "transactional_id")) {
                settings.put("transactional.id", options.get("transactional_id").asText());
            }
            producer = new KafkaProducer<>(settings);
            if (has(options, "transactional_id")) {
                producer.initTransactions();
            }
        }

        @Override
        public Object handle(JsonNode request) throws Exception {
            switch (request.get("op").asText()) {
                case "produce":
                    return produce(request.get("records"));
                case "begin":
                    producer.beginTransaction();
                    return null;
                case "send_offsets":
                    ConsumerEndpoint consumer = (ConsumerEndpoint) ENDPOINTS.get(request.get("consumer").asInt());
                    producer.sendOffsetsToTransaction(offsets(request.get("offsets")), consumer.consumer.groupMetadata());
                    return null;
                case "commit_transaction":
                    producer.commitTransaction();
                    return null;
                case "abort_transaction":
                    producer.abortTransaction();
                    return null;
                default:
                    throw unknown(request);
            }
        }

        private List<Map<String, Object>> produce(JsonNode records) throws Exception {
            List<Object> sent = new ArrayList<>();
            for (JsonNode record : records) {
                try {
                    sent.add(producer.send(recordOf(record)));
                } catch (RuntimeException error) {
                    sent.add(error);
                }
            }
            producer.flush();
            List<Map<String, Object>> deliveries = new ArrayList<>();
            for (Object each : sent) {
                deliveries.add(delivery(each));
            }
            return deliveries;
        }

        private static ProducerRecord<byte[], byte[]> recordOf(JsonNode record) throws Exception {
            ProducerRecord<byte[], byte[]> made = new ProducerRecord<>(
                record.get("topic").asText(),
                has(record, "partition") ? (Integer) record.get("partition").asInt() : null,
                has(record, "timestamp_ms") ? (Long) record.get("timestamp_ms").asLong() : null,
                bytes(record.get("key")),
                bytes(record.get("value")));
            for (JsonNode header : record.get("headers")) {
                made.headers().add(header.get("key").asText(), bytes(header.get("value")));
            }
            return made;
        }

        private static Map<String, Object> delivery(Object sent) {
            Map<String, Object> told = new HashMap<>(Map.of("error", 0, "partition", -1, "offset", -1));
            try {
                if (sent instanceof RuntimeException) {
                    throw (RuntimeException) sent;
                }
                RecordMetadata metadata = (RecordMetadata) ((Future<?>) sent).get();
                told.put("partition", metadata.partition());
                told.put("offset", metadata.hasOffset() ? metadata.offset() : -1);
            } catch (Exception error) {
                told.put("error", code(error));
            }
            return told;
        }

        @Override
        public void close() {
            producer.close(Duration.ofSeconds(5));
        }
    }

    static final class ConsumerEndpoint implements Endpoint, ConsumerRebalanceListener {
        private static final Map<String, String> ASSIGNORS = Map.of(
            "range", "org.apache.kafka.clients.consumer.RangeAssignor",
            "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
            "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
            "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        private final KafkaConsumer<byte[], byte[]> consumer;
        private int revocations;

        ConsumerEndpoint(JsonNode options) {
            Properties settings = connection(options);
            settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
            settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
            settings.put("enable.auto.commit", "false");
            settings.put("auto.offset.reset", options.get("offset_reset").asText());
            settings.put("isolation.level", options.get("isolation").asText());
            String assignor = options.path("assignor").asText("");
            if (assignor.equals("consumer")) {
                settings.put("group.protocol", "consumer");
            } else {
                settings.put("heartbeat.interval.ms", "100");
            }
            if (ASSIGNORS.containsKey(assignor)) {
                settings.put("partition.assignment.strategy", ASSIGNORS.get(assignor));
            }
            put(settings, "group.id", options, "group");
            put(settings, "group.instance.id", options, "instance_id");
            put(settings, "fetch.max.wait.ms", options, "fetch_wait_ms");
            put(settings, "max.partition.fetch.bytes", options, "partition_fetch_bytes");
            consumer = new KafkaConsumer<>(settings);
        }

        private static void put(Properties settings, String name, JsonNode options, String field) {
            if (has(options, field)) {
                settings.put(name, options.get(field).asText());
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
            if (!revoked.isEmpty()) {
                revocations++;
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
        }

        @Override
        public Object handle(JsonNode request) throws Exception {
            switch (request.get("op").asText()) {
                case "subscribe":
                    consumer.subscribe(List.of(request.get("topic").asText()), this);
                    return null;
                case "assign":
                    List<TopicPartition> wanted = new ArrayList<>();
                    request.get("partitions").forEach(each -> wanted.add(partition(each)));
                    consumer.assign(wanted);
                    return null;
                case "assignment":
                    List<Object> assigned = new ArrayList<>();
                    consumer.assignment().forEach(each -> assigned.add(fields(each)));
                    return assigned;
                case "poll":
                    return poll(request.get("timeout_ms").asLong());
                case "commit":
                    commit(request.get("offsets"));
                    return null;
                case "commit_async":
                    consumer.commitAsync(offsets(request.get("offsets")), null);
                    return null;
                default:
                    return handleOne(request, partition(request));
            }
        }

        private Object handleOne(JsonNode request, TopicPartition at) {
            Set<TopicPartition> only = Collections.singleton(at);
            switch (request.get("op").asText()) {
                case "seek":
                    consumer.seek(at, request.get("offset").asLong());
                    return null;
                case "seek_to_beginning":
                    consumer.seekToBeginning(only);
                    return null;
                case "seek_to_end":
                    consumer.seekToEnd(only);
                    consumer.position(at); // which asks for the end now
                    return null;
                case "position":
                    return consumer.position(at);
                case "beginning_and_end":
                    return List.of(consumer.beginningOffsets(only).get(at), consumer.endOffsets(only).get(at));
                case "offset_for_time":
                    OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(at, request.get("timestamp_ms").asLong())).get(at);
                    return found == null ? null : found.offset();
                case "pause":
                    consumer.pause(only);
                    return null;
                case "resume":
                    consumer.resume(only);
                    return null;
                case "committed":
                    OffsetAndMetadata committed = consumer.committed(only).get(at);
                    return committed == null ? null : Map.of("offset", committed.offset(), "metadata", committed.metadata());
                default:
                    throw unknown(request);
            }
        }

        private Object poll(long timeoutMs) {
            List<Object> records = new ArrayList<>();
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(timeoutMs))) {
                Map<String, Object> told = fields(new TopicPartition(record.topic(), record.partition()));
                List<Object> headers = new ArrayList<>();
                for (Header header : record.headers()) {
                    headers.add(Map.of("key", header.key(), "value", header.value()));
                }
                told.put("offset", record.offset());
                told.put("key", record.key());
                told.put("value", record.value());
                told.put("headers", headers);
                told.put("timestamp_ms", record.timestamp());
                told.put("timestamp_type", record.timestampType().id);
                records.add(told);
            }
            return Map.of("records", records, "revocations", revocations);
        }

        private void commit(JsonNode offsets) {
            if (offsets == null || offsets.isNull()) {
                consumer.commitSync();
            } else {
                consumer.commitSync(offsets(offsets));
            }
        }

        @Override
        public void close() {
            consumer.close();
        }
    }

    static final class AdminEndpoint implements Endpoint {
        private final Admin admin;

        AdminEndpoint(JsonNode options) {
            Properties settings = connection(options);
            admin = Admin.create(settings);
        }

        @Override
        public Object handle(JsonNode request) throws Exception {
            String topic = request.path("topic").asText();
            String group = request.path("group").asText();
            switch (request.get("op").asText()) {
                case "create_topic":
                    NewTopic wanted = new NewTopic(topic, request.get("count").asInt(), (short) 1).configs(strings(request.get("configs")));
                    CreateTopicsOptions how = new CreateTopicsOptions().validateOnly(request.get("validate_only").asBoolean());
                    return admin.createTopics(List.of(wanted), how).all().get();
                case "delete_topic":
                    return admin.deleteTopics(List.of(topic)).all().get();
                case "topics":
                    return topics();
                case "create_partitions":
                    return admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(request.get("count").asInt()))).all().get();
                case "topic_configs":
                    Map<String, String> configs = new HashMap<>();
                    for (Config config : admin.describeConfigs(List.of(resource(topic))).all().get().values()) {
                        config.entries().forEach(entry -> configs.put(entry.name(), entry.value()));
                    }
                    return configs;
                case "alter_configs":
                    return alterConfigs(topic, strings(request.get("configs")));
                case "incremental_alter_configs":
                    return incrementalAlterConfigs(topic, request.get("changes"));
                case "delete_records":
                    RecordsToDelete before = RecordsToDelete.beforeOffset(request.get("offset").asLong());
                    TopicPartition cut = partition(request);
                    return admin.deleteRecords(Map.of(cut, before)).lowWatermarks().get(cut).get().lowWatermark();
                case "groups":
                    List<String> groups = new ArrayList<>();
                    admin.listConsumerGroups().all().get().forEach(listed -> groups.add(listed.groupId()));
                    return groups;
                case "describe_group":
                    ConsumerGroupDescription described = admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get();
                    return Map.of("state", state(described), "members", described.members().size());
                case "delete_group":
                    return admin.deleteConsumerGroups(List.of(group)).all().get();
                case "group_offsets":
                    List<Object> offsets = new ArrayList<>();
                    admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().forEach((partition, committed) -> {
                        Map<String, Object> told = fields(partition);
                        told.put("offset", committed.offset());
                        offsets.add(told);
                    });
                    return offsets;
                case "alter_group_offset":
                    OffsetAndMetadata offset = new OffsetAndMetadata(request.get("offset").asLong());
                    return admin.alterConsumerGroupOffsets(group, Map.of(partition(request), offset)).all().get();
                case "delete_group_offset":
                    return admin.deleteConsumerGroupOffsets(group, Set.of(partition(request))).all().get();
                case "list_offset":
                    return admin.listOffsets(Map.of(partition(request), spec(request))).partitionResult(partition(request)).get().offset();
                case "log_dir_sizes":
                    return logDirSizes();
                case "describe_cluster":
                    return describeCluster();
                default:
                    throw unknown(request);
            }
        }

        private static Map<String, String> strings(JsonNode object) {
            Map<String, String> strings = new HashMap<>();
            object.fields().forEachRemaining(entry -> strings.put(entry.getKey(), entry.getValue().asText()));
            return strings;
        }

        private static ConfigResource resource(String topic) {
            return new ConfigResource(ConfigResource.Type.TOPIC, topic);
        }

        /** describeTopics' all() became allTopicNames() in 3.1. */
        private Map<String, Integer> topics() throws Exception {
            Set<String> names = admin.listTopics().names().get();
            Object result = admin.describeTopics(names);
            String all = VERSION.startsWith("2.") ? "all" : "allTopicNames";
            Future<?> described = (Future<?>) call(result, result.getClass(), all, new Class<?>[0]);
            Map<String, Integer> topics = new HashMap<>();
            for (Object each : ((Map<?, ?>) described.get()).values()) {
                TopicDescription description = (TopicDescription) each;
                topics.put(description.name(), description.partitions().size());
            }
            return topics;
        }

        /** Gone since 4.0. */
        private Object alterConfigs(String topic, Map<String, String> configs) throws Exception {
            List<ConfigEntry> entries = new ArrayList<>();
            configs.forEach((name, value) -> entries.add(new ConfigEntry(name, value)));
            Map<ConfigResource, Config> wanted = Map.of(resource(topic), new Config(entries));
            Object result = call(admin, Admin.class, "alterConfigs", new Class<?>[] {Map.class}, wanted);
            return ((Future<?>) call(result, result.getClass(), "all", new Class<?>[0])).get();
        }

        private Object incrementalAlterConfigs(String topic, JsonNode changes) throws Exception {
            List<AlterConfigOp> wanted = new ArrayList<>();
            for (JsonNode change : changes) {
                String value = has(change, "value") ? change.get("value").asText() : null;
                ConfigEntry entry = new ConfigEntry(change.get("name").asText(), value);
                wanted.add(new AlterConfigOp(entry, AlterConfigOp.OpType.valueOf(change.get("operation").asText())));
            }
            return admin.incrementalAlterConfigs(Map.of(resource(topic), wanted)).all().get();
        }

        /** state() became groupState() in 4.0. */
        private static String state(ConsumerGroupDescription described) throws Exception {
            boolean old = !VERSION.startsWith("4.");
            return call(described, ConsumerGroupDescription.class, old ? "state" : "groupState", new Class<?>[0]).toString();
        }

        private static OffsetSpec spec(JsonNode request) throws Exception {
            switch (request.get("spec").asText()) {
                case "earliest":
                    return OffsetSpec.earliest();
                case "latest":
                    return OffsetSpec.latest();
                case "max_timestamp": // since 3.0
                    return (OffsetSpec) call(null, OffsetSpec.class, "maxTimestamp", new Class<?>[0]);
                default:
                    return OffsetSpec.forTimestamp(request.get("timestamp_ms").asLong());
            }
        }

        private Object logDirSizes() throws Exception {
            List<Integer> brokers = new ArrayList<>();
            admin.describeCluster().nodes().get().forEach(node -> brokers.add(node.id()));
            List<Object> sizes = new ArrayList<>();
            for (Map<String, LogDirDescription> ofBroker : admin.describeLogDirs(brokers).allDescriptions().get().values()) {
                for (LogDirDescription logDir : ofBroker.values()) {
                    logDir.replicaInfos().forEach((partition, replica) -> {
                        Map<String, Object> told = fields(partition);
                        told.put("size", replica.size());
                        sizes.add(told);
                    });
                }
            }
            return sizes;
        }

        private Object describeCluster() throws Exception {
            DescribeClusterResult described = admin.describeCluster();
            List<Object> brokers = new ArrayList<>();
            for (Node node : described.nodes().get()) {
                brokers.add(Map.of("id", node.id(), "host", node.host(), "port", node.port()));
            }
            return Map.of(
                "cluster_id", described.clusterId().get(),
                "controller_id", described.controller().get().id(),
                "brokers", brokers);
        }

        @Override
        public void close() {
            admin.close();
        }
    }
}
