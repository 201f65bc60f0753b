package org.apache.kafka.common.test;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import kafka.server.BrokerServer;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.utils.Utils;

/** Brokers of pybroker in place of Kafka's: as much of that class as the tests of Connect and MirrorMaker ask for. */
public final class KafkaClusterTestKit implements AutoCloseable {
    private static final String LISTENER = "EXTERNAL";

    public static final class Builder {
        private final TestKitNodes nodes;
        private final Map<String, Object> settings = new HashMap<>();

        public Builder(TestKitNodes nodes) {
            this.nodes = nodes;
        }

        public Builder setConfigProp(String name, Object value) {
            settings.put(name, value);
            return this;
        }

        public KafkaClusterTestKit build() throws IOException {
            return new KafkaClusterTestKit(nodes.brokerNodes().size(), settings);
        }
    }

    private final Path directory = Files.createTempDirectory(Path.of(System.getProperty("java.io.tmpdir")), "cluster-");
    private final Map<Integer, BrokerServer> brokers = new TreeMap<>();
    private final Map<Integer, Integer> ports = new TreeMap<>();
    private final MockFaultHandler nonFatalFaultHandler = new MockFaultHandler("nonFatalFaultHandler");

    private KafkaClusterTestKit(int count, Map<String, Object> given) throws IOException {
        for (int id = 0; id < count; id++) {
            ports.put(id, freePort());
            Map<String, String> settings = new HashMap<>();
            settings.put("listener.security.protocol.map", LISTENER + ":PLAINTEXT");
            given.forEach((name, value) -> settings.put(name, text(value)));
            settings.put("node.id", Integer.toString(id));
            settings.put("listeners", LISTENER + "://localhost:" + ports.get(id));
            settings.put("inter.broker.listener.name", LISTENER);
            settings.put("log.dirs", directory.resolve("data-" + id).toString());
            // A cluster that lives for seconds needs no fifty of them.
            settings.putIfAbsent("offsets.topic.num.partitions", "5");
            settings.putIfAbsent("transaction.state.log.num.partitions", "5");
            if (count > 1) {
                settings.put("pybroker.metadata", "sqlite://" + directory.resolve("metadata.db"));
            }
            brokers.put(id, new BrokerServer(directory.resolve("node-" + id), settings));
        }
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        }
    }

    private static String text(Object value) {
        if (value instanceof Password password) {
            return password.value();
        }
        if (value instanceof Collection<?> several) {
            return several.stream().map(String::valueOf).collect(Collectors.joining(","));
        }
        return String.valueOf(value);
    }

    public void format() { }

    public void startup() {
        brokers.values().parallelStream().forEach(BrokerServer::startup);
    }

    public void waitForReadyBrokers() { }

    public String bootstrapServers() {
        return ports.values().stream().map(port -> "localhost:" + port).collect(Collectors.joining(","));
    }

    public Map<Integer, BrokerServer> brokers() {
        return brokers;
    }

    public MockFaultHandler nonFatalFaultHandler() {
        return nonFatalFaultHandler;
    }

    @Override
    public void close() throws IOException {
        brokers.values().forEach(BrokerServer::shutdown);
        brokers.values().forEach(BrokerServer::awaitShutdown);
        Utils.delete(directory.toFile());
    }
}
