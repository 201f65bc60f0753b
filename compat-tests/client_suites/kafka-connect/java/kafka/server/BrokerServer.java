package kafka.server;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.metadata.BrokerState;

/** A pybroker in place of Kafka's broker: as much of that class as the tests of Connect and MirrorMaker ask for. */
public final class BrokerServer {
    private static final long READY_WITHIN_MS = 60_000;
    private static final long ENDED_WITHIN_S = 30;
    private static final String READY_LINE = "pybroker ready on ";

    private final Path directory;
    private final Properties settings;
    private Process process;

    public BrokerServer(Path directory, Map<String, String> settings) {
        this.directory = directory;
        this.settings = new Properties();
        this.settings.putAll(settings);
    }

    public synchronized void startup() {
        try {
            Files.createDirectories(directory);
            Path config = directory.resolve("server.properties");
            try (var out = Files.newOutputStream(config)) {
                settings.store(out, null);
            }
            Path log = directory.resolve("broker.log");
            long begin = Files.exists(log) ? Files.size(log) : 0;
            List<String> command = new ArrayList<>(List.of(System.getProperty("pybroker.command").split(" ")));
            command.addAll(List.of("serve", "--config", config.toString()));
            process = new ProcessBuilder(command)
                .redirectErrorStream(true)
                .redirectInput(new File("/dev/null"))
                .redirectOutput(ProcessBuilder.Redirect.appendTo(log.toFile()))
                .start();
            awaitReady(log, begin);
        } catch (IOException | InterruptedException e) {
            throw new RuntimeException(e);
        }
    }

    private void awaitReady(Path log, long begin) throws IOException, InterruptedException {
        long deadline = System.currentTimeMillis() + READY_WITHIN_MS;
        while (true) {
            byte[] written = Files.readAllBytes(log);
            String said = new String(written, (int) begin, written.length - (int) begin);
            if (said.contains(READY_LINE)) {
                return;
            }
            if (!process.isAlive() || System.currentTimeMillis() > deadline) {
                throw new RuntimeException("pybroker does not serve: " + said);
            }
            Thread.sleep(10);
        }
    }

    public synchronized void shutdown() {
        if (process != null) {
            process.destroy();
        }
    }

    public synchronized void awaitShutdown() {
        if (process == null) {
            return;
        }
        try {
            if (!process.waitFor(ENDED_WITHIN_S, TimeUnit.SECONDS)) {
                process.destroyForcibly().waitFor();
            }
        } catch (InterruptedException e) {
            throw new RuntimeException(e);
        }
    }

    public synchronized BrokerState brokerState() {
        return process != null && process.isAlive() ? BrokerState.RUNNING : BrokerState.NOT_RUNNING;
    }
}
