// Eight well-known topologies of Kafka Streams in one application, for what they write to be compared with Spark's.
//
//     Topologies PREFIX NAME=VALUE...        the settings of Kafka Streams
//
// Topics begin with PREFIX; keys and values are text.  A windowed key is written as KEY@START, in ms, a session's as
// KEY@START-END.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.Stores;

public final class Topologies {
    private static final Duration MINUTE = Duration.ofMinutes(1);
    private static final Duration GRACE = Duration.ofSeconds(30);
    private static final Duration GAP = Duration.ofMinutes(5);
    private static final Duration HISTORY = Duration.ofDays(1);
    private static final int TOP = 2;

    private final StreamsBuilder builder = new StreamsBuilder();
    private final String prefix;

    private Topologies(String prefix) {
        this.prefix = prefix;
    }

    public static void main(String[] arguments) throws InterruptedException {
        List<String> settings = new ArrayList<>(List.of(arguments).subList(1, arguments.length));
        settings.add(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG + "=" + Serdes.StringSerde.class.getName());
        settings.add(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG + "=" + Serdes.StringSerde.class.getName());
        Application.run(new Topologies(arguments[0]).all().build(), settings);
    }

    private StreamsBuilder all() {
        wordCount();
        pageViewsByRegion();
        anomalies();
        topArticles();
        sessions();
        ordersNamed();
        salesPriced();
        peopleInCities();
        return builder;
    }

    private void wordCount() {
        input("lines")
            .flatMapValues(line -> Arrays.asList(line.toLowerCase().split("\\W+")))
            .filter((key, word) -> !word.isEmpty())
            .groupBy((key, word) -> word)
            .count()
            .toStream()
            .mapValues(String::valueOf)
            .to(prefix + "word-counts");
    }

    private void pageViewsByRegion() {
        input("views")
            .join(table("users"), (page, region) -> region)
            .groupBy((user, region) -> region)
            .windowedBy(TimeWindows.ofSizeAndGrace(MINUTE, GRACE))
            .count()
            .toStream()
            .map((region, count) -> KeyValue.pair(windowed(region), String.valueOf(count)))
            .to(prefix + "views-by-region");
    }

    private void anomalies() {
        input("clicks")
            .groupByKey()
            .windowedBy(TimeWindows.ofSizeAndGrace(MINUTE, GRACE))
            .count()
            .toStream()
            .filter((user, count) -> count >= 3)
            .map((user, count) -> KeyValue.pair(windowed(user), String.valueOf(count)))
            .to(prefix + "anomalies");
    }

    // Articles are read by people of an industry: the key is the article, the value the industry.
    private void topArticles() {
        input("articles")
            .groupBy((article, industry) -> industry + "/" + article)
            .windowedBy(TimeWindows.ofSizeAndGrace(MINUTE, GRACE))
            .count()
            .groupBy(
                (read, count) -> KeyValue.pair(
                    read.key().split("/")[0] + "@" + read.window().start(), read.key().split("/")[1] + "=" + count),
                Grouped.with(Serdes.String(), Serdes.String()))
            .aggregate(() -> "", (key, added, all) -> with(all, added), (key, removed, all) -> without(all, removed))
            .toStream()
            .mapValues(Topologies::top)
            .to(prefix + "top-articles");
    }

    private void sessions() {
        input("visits")
            .groupByKey()
            .windowedBy(SessionWindows.ofInactivityGapAndGrace(GAP, GRACE))
            .count()
            .toStream()
            .map((user, count) -> KeyValue.pair(
                windowed(user) + "-" + user.window().end(), count == null ? null : String.valueOf(count)))
            .to(prefix + "sessions");
    }

    // An order is CUSTOMER/ITEM: the customer's name comes from a table that has it as its key.
    private void ordersNamed() {
        table("orders")
            .leftJoin(
                table("customers"),
                order -> order.split("/")[0],
                (order, customer) -> order + "=" + (customer == null ? "?" : customer))
            .toStream()
            .to(prefix + "orders-named");
    }

    // A sale has the price that its article had at the time of the sale, whatever has come since.
    private void salesPriced() {
        KTable<String, String> prices = builder.table(
            prefix + "prices", Materialized.as(Stores.persistentVersionedKeyValueStore("prices", HISTORY)));
        input("sales")
            .join(prices, (sale, price) -> sale + "=" + price)
            .map((article, priced) -> KeyValue.pair(priced.split("=")[0], priced.split("=")[1]))
            .to(prefix + "sales-priced");
    }

    // Where somebody is who has a name; a tombstone when that is no longer known.
    private void peopleInCities() {
        table("people").join(table("cities"), (name, city) -> name + " in " + city).toStream().to(prefix + "people-in-cities");
    }

    private KStream<String, String> input(String topic) {
        return builder.stream(prefix + topic);
    }

    private KTable<String, String> table(String topic) {
        return builder.table(prefix + topic);
    }

    private static String windowed(Windowed<String> key) {
        return key.key() + "@" + key.window().start();
    }

    private static String with(String all, String added) {
        TreeMap<String, Integer> counts = counts(all);
        counts.putAll(counts(added));
        return text(counts);
    }

    private static String without(String all, String removed) {
        TreeMap<String, Integer> counts = counts(all);
        counts.keySet().removeAll(counts(removed).keySet());
        return text(counts);
    }

    private static TreeMap<String, Integer> counts(String text) {
        TreeMap<String, Integer> counts = new TreeMap<>();
        for (String one : text.isEmpty() ? new String[0] : text.split(",")) {
            counts.put(one.split("=")[0], Integer.valueOf(one.split("=")[1]));
        }
        return counts;
    }

    private static String text(Map<String, Integer> counts) {
        return counts.entrySet().stream().map(one -> one.getKey() + "=" + one.getValue()).collect(Collectors.joining(","));
    }

    // The most read ones, of equals the first by name.
    private static String top(String all) {
        return counts(all).entrySet().stream()
            .sorted(Map.Entry.<String, Integer>comparingByValue(Comparator.reverseOrder())
                .thenComparing(Map.Entry.comparingByKey()))
            .limit(TOP)
            .map(one -> one.getKey() + "=" + one.getValue())
            .collect(Collectors.joining(","));
    }
}
