import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * Reads messages with Apache Kafka's own classes and writes them again.
 *
 * Standard input: one message per line, as name, version and hexadecimal bytes.
 * Standard output: per line the bytes that Kafka writes for it, or an error.
 */
public class ReadAndWriteAgain {
    static final String[] CLASS_NAMES = {
        "org.apache.kafka.common.message.%sData",
        "org.apache.kafka.common.message.%s",
        "org.apache.kafka.common.metadata.%s",
        "org.apache.kafka.coordinator.group.generated.%s",
        "org.apache.kafka.coordinator.transaction.generated.%s",
        "org.apache.kafka.coordinator.share.generated.%s",
    };

    static Message newMessage(String name) throws ReflectiveOperationException {
        for (String className : CLASS_NAMES) {
            try {
                return (Message) Class.forName(String.format(className, name)).getConstructor().newInstance();
            } catch (ClassNotFoundException e) {
                // It lies in another package.
            }
        }
        throw new ClassNotFoundException(name);
    }

    static String again(String name, short version, String hex) {
        try {
            ByteBuffer input = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
            Message message = newMessage(name);
            message.read(new ByteBufferAccessor(input), version);
            if (input.hasRemaining()) {
                return "error: " + input.remaining() + " bytes were not read";
            }
            ByteBuffer output = MessageUtil.toByteBufferAccessor(message, version).buffer();
            byte[] bytes = new byte[output.remaining()];
            output.get(bytes);
            return HexFormat.of().formatHex(bytes);
        } catch (Exception e) {
            return "error: " + e;
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader reader = new BufferedReader(new InputStreamReader(System.in));
        for (String line = reader.readLine(); line != null; line = reader.readLine()) {
            String[] parts = line.split(" ", -1);
            System.out.println(again(parts[0], Short.parseShort(parts[1]), parts[2]));
        }
    }
}
