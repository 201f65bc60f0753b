import com.google.re2j.Pattern;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.Utils;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Answers questions about consumer groups with Apache Kafka's own classes.
 *
 * Standard input: one question per line, its fields divided by tabs, the first its kind:
 *   assign, assignor, HOMOGENEOUS or HETEROGENEOUS, partition count of each topic ("3,4"), and per member, in the order
 *     that Kafka is to go through them: "id|instance id or nothing|topics ("0,2")|assigned ("0:1,2;3:0")";
 *   topic-hash, topic id (two longs, "1,2"), name, racks of each partition ("a,b;a,c");
 *   group-hash, "name=hash,name=hash";
 *   regex, pattern, names ("a,b").
 * Standard output: per line the answer, or "error" and what was wrong.
 */
public class AskKafka {
    // Small ids, so that Kafka's hash sets go through topics in the order of their numbers.
    static Uuid topicId(int topic) {
        return new Uuid(0, topic + 1);
    }

    static List<String> split(String text, String separator) {
        return text.isEmpty() ? List.of() : List.of(text.split(separator, -1));
    }

    static Map<Uuid, Set<Integer>> assigned(String text) {
        Map<Uuid, Set<Integer>> assigned = new TreeMap<>();
        for (String topic : split(text, ";")) {
            String[] parts = topic.split(":");
            Set<Integer> partitions = new TreeSet<>();
            split(parts[1], ",").forEach(index -> partitions.add(Integer.parseInt(index)));
            assigned.put(topicId(Integer.parseInt(parts[0])), partitions);
        }
        return assigned;
    }

    static String assign(String[] question) {
        List<String> counts = split(question[3], ",");
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        for (int i = 4; i < question.length; i++) {
            String[] parts = question[i].split("\\|", -1);
            Set<Uuid> topics = new LinkedHashSet<>();
            split(parts[2], ",").forEach(topic -> topics.add(topicId(Integer.parseInt(topic))));
            Map<Uuid, Set<Integer>> assigned = assigned(parts[3]);
            assigned.forEach((topic, partitions) -> partitions.forEach(
                index -> owners.computeIfAbsent(topic, key -> new HashMap<>()).put(index, parts[0])));
            Optional<String> instance = parts[1].isEmpty() ? Optional.empty() : Optional.of(parts[1]);
            members.put(parts[0], new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), instance, topics, new Assignment(Collections.unmodifiableMap(assigned))));
        }
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topicId) {
                return Integer.parseInt(counts.get((int) topicId.getLeastSignificantBits() - 1));
            }

            @Override
            public Set<String> racksForPartition(Uuid topicId, int partition) {
                throw new IllegalStateException("an assignor looked at racks");
            }
        };
        ConsumerGroupPartitionAssignor assignor =
            question[1].equals("range") ? new RangeAssignor() : new UniformAssignor();
        GroupAssignment assignment = assignor.assign(
            new GroupSpecImpl(members, SubscriptionType.valueOf(question[2]), owners), describer);
        List<String> answer = new ArrayList<>();
        assignment.members().forEach((member, share) -> answer.add(member + "|" + new TreeMap<>(share.partitions())
            .entrySet().stream()
            .filter(entry -> !entry.getValue().isEmpty())
            .map(entry -> (entry.getKey().getLeastSignificantBits() - 1) + ":" + new TreeSet<>(entry.getValue())
                .stream().map(String::valueOf).collect(Collectors.joining(",")))
            .collect(Collectors.joining(";"))));
        return String.join("\t", answer);
    }

    static String topicHash(String[] question) {
        List<String> id = split(question[1], ",");
        Uuid topicId = new Uuid(Long.parseLong(id.get(0)), Long.parseLong(id.get(1)));
        List<String> racks = List.of(question[3].split(";", -1));
        Object topic = Proxy.newProxyInstance(AskKafka.class.getClassLoader(),
            new Class<?>[] {CoordinatorMetadataImage.TopicMetadata.class},
            (proxy, method, arguments) -> switch (method.getName()) {
                case "name" -> question[2];
                case "id" -> topicId;
                case "partitionCount" -> racks.size();
                default -> new ArrayList<>(split(racks.get((int) arguments[0]), ","));
            });
        CoordinatorMetadataImage image = (CoordinatorMetadataImage) Proxy.newProxyInstance(
            AskKafka.class.getClassLoader(), new Class<?>[] {CoordinatorMetadataImage.class},
            (proxy, method, arguments) -> Optional.of(topic));
        return String.valueOf(Utils.computeTopicHash(question[2], image));
    }

    static String groupHash(String[] question) {
        Map<String, Long> hashes = new HashMap<>();
        for (String topic : split(question[1], ",")) {
            hashes.put(topic.split("=")[0], Long.parseLong(topic.split("=")[1]));
        }
        return String.valueOf(Utils.computeGroupHash(hashes));
    }

    static String regex(String[] question) throws ReflectiveOperationException {
        Method check = Utils.class.getDeclaredMethod("throwIfRegularExpressionIsInvalid", String.class);
        check.setAccessible(true);
        try {
            check.invoke(null, question[1]);
        } catch (InvocationTargetException e) {
            return "error " + e.getCause().getMessage();
        }
        Pattern pattern = Pattern.compile(question[1]);
        return split(question[2], ",").stream()
            .filter(name -> pattern.matcher(name).matches())
            .collect(Collectors.joining(","));
    }

    static String answer(String[] question) {
        try {
            return switch (question[0]) {
                case "assign" -> assign(question);
                case "topic-hash" -> topicHash(question);
                case "group-hash" -> groupHash(question);
                default -> regex(question);
            };
        } catch (Exception e) {
            return "error " + e;
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            output.append(answer(line.split("\t", -1))).append('\n');
        }
        System.out.write(output.toString().getBytes("UTF-8"));
        System.out.flush();
    }
}
