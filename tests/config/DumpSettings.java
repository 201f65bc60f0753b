import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.common.config.ConfigDef;

/**
 * Prints every setting of the Kafka on the class path, one per line, fields separated by tabs; and for each line of
 * input, settings of a broker, whether Kafka would start with them.
 */
public class DumpSettings {
    static String oneLine(Object value) {
        return value == null ? "\0" : value.toString().replace("\t", " ").replace("\n", " ");
    }

    static void table(String resource, ConfigDef settings, Map<String, String> modes) {
        for (ConfigDef.ConfigKey key : settings.configKeys().values()) {
            Object standard = key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null;
            System.out.println(String.join("\t", "setting", resource, key.name, key.type.name(), oneLine(standard),
                oneLine(key.validator), key.importance.name(), modes.getOrDefault(key.name, "read-only"),
                Boolean.toString(key.internalConfig)));
        }
    }

    static String judged(String settings) {
        Properties properties = new Properties();
        properties.put("node.id", "1");
        properties.put("process.roles", "broker,controller");
        properties.put("listeners", "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093");
        properties.put("controller.listener.names", "CONTROLLER");
        properties.put("controller.quorum.voters", "1@localhost:9093");
        for (String setting : settings.split("\t")) {
            String[] parts = setting.split("=", 2);
            properties.put(parts[0], parts[1]);
        }
        try {
            kafka.server.KafkaConfig.fromProps(properties, false);
            return "accepted";
        } catch (RuntimeException refusal) {
            return "refused";
        }
    }

    public static void main(String[] arguments) throws java.io.IOException {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine())
            System.out.println(String.join("\t", "judged", judged(line)));
        table("broker", kafka.server.KafkaConfig.configDef(),
            org.apache.kafka.server.config.DynamicBrokerConfig.dynamicConfigUpdateModes());
        table("topic", org.apache.kafka.storage.internals.log.LogConfig.configDefCopy(), Map.of());
        table("group", org.apache.kafka.coordinator.group.GroupConfig.CONFIG_DEF, Map.of());
        table("client-metrics", org.apache.kafka.server.metrics.ClientMetricsConfigs.configDef(), Map.of());
        org.apache.kafka.server.config.ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach((name, synonyms) ->
            synonyms.forEach(s -> System.out.println(
                String.join("\t", "topic-synonym", name, s.name(), s.converter().apply("1")))));
        for (Map.Entry<String, Optional<String>> entry
                : org.apache.kafka.coordinator.group.GroupConfig.ALL_GROUP_CONFIG_SYNONYMS.entrySet())
            entry.getValue().ifPresent(name ->
                System.out.println(String.join("\t", "group-synonym", entry.getKey(), name)));
        for (String name : kafka.server.KafkaConfig.configDef().configKeys().keySet())
            System.out.println(String.join("\t", "broker-synonyms", name, String.join(",",
                org.apache.kafka.server.config.DynamicBrokerConfig.brokerConfigSynonyms(name, true))));
    }
}
