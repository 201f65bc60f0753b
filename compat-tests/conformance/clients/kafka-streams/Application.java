// Runs a topology until SIGTERM closes it: what both applications of this folder have in common.
//
// Prints "RUNNING n" whenever all of its tasks run, n of them.

import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

final class Application {
    private Application() {
    }

    // Returns when the application has ended, closed or failed; settings are NAME=VALUE, those of Kafka Streams.
    static void run(Topology topology, List<String> settings) throws InterruptedException {
        KafkaStreams streams = new KafkaStreams(topology, properties(settings));
        CountDownLatch ended = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setStateListener((state, before) -> {
            if (state == KafkaStreams.State.RUNNING) {
                System.out.println("RUNNING " + tasks(streams));
            } else if (state.hasCompletedShutdown()) {
                ended.countDown();
            }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
        ended.await();
    }

    private static Properties properties(List<String> settings) {
        Properties properties = new Properties();
        for (String setting : settings) {
            int end = setting.indexOf('=');
            properties.setProperty(setting.substring(0, end), setting.substring(end + 1));
        }
        return properties;
    }

    private static int tasks(KafkaStreams streams) {
        return streams.metadataForLocalThreads().stream().mapToInt(thread -> thread.activeTasks().size()).sum();
    }
}
