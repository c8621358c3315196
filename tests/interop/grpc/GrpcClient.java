import java.io.BufferedReader;
import java.io.Closeable;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;
import org.apache.rocketmq.shaded.com.google.gson.Gson;
import org.apache.rocketmq.shaded.com.google.gson.JsonArray;
import org.apache.rocketmq.shaded.com.google.gson.JsonElement;
import org.apache.rocketmq.shaded.com.google.gson.JsonObject;
import org.apache.rocketmq.shaded.com.google.gson.JsonParser;

/** Apache's gRPC client for Java; performs the same commands as client.py beside it, a line of JSON each. */
public final class GrpcClient {
    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final Map<String, Closeable> clients = new ConcurrentHashMap<>();
    private final Map<String, List<JsonObject>> seen = new ConcurrentHashMap<>();
    private final List<MessageView> received = new ArrayList<>();

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        GrpcClient client = new GrpcClient();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        out.println("{\"ready\":true}");
        out.flush();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonObject command = JsonParser.parseString(line).getAsJsonObject();
            if (text(command, "do").equals("exit")) {
                break;
            }
            JsonObject answer = new JsonObject();
            try {
                answer.add("ok", client.perform(command));
            } catch (Throwable problem) {
                answer.addProperty("error", problem.getClass().getSimpleName());
                answer.addProperty("message", String.valueOf(problem.getMessage()));
            }
            out.write((new Gson().toJson(answer) + "\n").getBytes(StandardCharsets.UTF_8));
            out.flush();
        }
        for (Closeable each : client.clients.values()) {
            each.close();
        }
        System.exit(0);
    }

    private static String text(JsonObject command, String name) {
        return command.has(name) && !command.get(name).isJsonNull() ? command.get(name).getAsString() : null;
    }

    private JsonElement perform(JsonObject command) throws Exception {
        String id = text(command, "id");
        switch (text(command, "do")) {
            case "producer":
                clients.put(id, producer(command, notes(id)));
                return null;
            case "send":
                return send((Producer) clients.get(id), command);
            case "recall":
                return new Gson().toJsonTree(((Producer) clients.get(id)).recallMessage(text(command, "topic"), text(command, "handle"))
                    .getMessageId().toString());
            case "simple":
                clients.put(id, provider.newSimpleConsumerBuilder().setClientConfiguration(settings(command))
                    .setConsumerGroup(text(command, "group")).setAwaitDuration(Duration.ofSeconds(command.get("await").getAsLong()))
                    .setSubscriptionExpressions(subscription(command)).build());
                return null;
            case "receive":
                return receive((SimpleConsumer) clients.get(id), command);
            case "ack":
                ((SimpleConsumer) clients.get(id)).ack(received.get(command.get("number").getAsInt()));
                return null;
            case "change":
                ((SimpleConsumer) clients.get(id)).changeInvisibleDuration(received.get(command.get("number").getAsInt()),
                    Duration.ofSeconds(command.get("seconds").getAsLong()));
                return null;
            case "push":
                clients.put(id, push(command, notes(id)));
                return null;
            case "seen":
                synchronized (seen.get(id)) {
                    return new Gson().toJsonTree(seen.get(id));
                }
            case "stop":
                clients.remove(id).close();
                return null;
            default:
                throw new IllegalArgumentException("unknown command " + command);
        }
    }

    private List<JsonObject> notes(String id) {
        return seen.computeIfAbsent(id, none -> Collections.synchronizedList(new ArrayList<>()));
    }

    private static ClientConfiguration settings(JsonObject command) {
        return ClientConfiguration.newBuilder().setEndpoints(text(command, "endpoints")).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(20)).build();
    }

    private static Map<String, FilterExpression> subscription(JsonObject command) {
        String tag = text(command, "tag");
        return Map.of(text(command, "topic"), new FilterExpression(tag == null ? "*" : tag));
    }

    private Producer producer(JsonObject command, List<JsonObject> asked) throws ClientException {
        List<String> topics = new ArrayList<>();
        command.getAsJsonArray("topics").forEach(topic -> topics.add(topic.getAsString()));
        return provider.newProducerBuilder().setClientConfiguration(settings(command)).setTopics(topics.toArray(new String[0]))
            .setTransactionChecker(message -> {
                asked.add(described(message));
                return TransactionResolution.COMMIT;
            }).build();
    }

    private JsonElement send(Producer producer, JsonObject command) throws ClientException {
        MessageBuilder builder = provider.newMessageBuilder().setTopic(text(command, "topic"))
            .setBody(text(command, "body").getBytes(StandardCharsets.UTF_8));
        if (text(command, "tag") != null) {
            builder.setTag(text(command, "tag"));
        }
        if (text(command, "key") != null) {
            builder.setKeys(text(command, "key"));
        }
        if (command.has("properties")) {
            command.getAsJsonObject("properties").entrySet().forEach(each -> builder.addProperty(each.getKey(), each.getValue().getAsString()));
        }
        if (text(command, "message_group") != null) {
            builder.setMessageGroup(text(command, "message_group"));
        }
        if (command.has("deliver_at")) {
            builder.setDeliveryTimestamp(command.get("deliver_at").getAsLong());
        }
        Message message = builder.build();
        String outcome = text(command, "transaction");
        SendReceipt receipt;
        if (outcome == null) {
            receipt = producer.send(message);
        } else {
            Transaction transaction = producer.beginTransaction();
            receipt = producer.send(message, transaction);
            if (outcome.equals("commit")) {
                transaction.commit();
            } else if (outcome.equals("rollback")) {
                transaction.rollback();
            }
        }
        JsonObject answer = new JsonObject();
        answer.addProperty("message_id", receipt.getMessageId().toString());
        answer.addProperty("recall_handle", receipt.getRecallHandle());
        return answer;
    }

    private JsonElement receive(SimpleConsumer consumer, JsonObject command) throws ClientException {
        JsonArray answer = new JsonArray();
        for (MessageView message : consumer.receive(command.get("count").getAsInt(), Duration.ofSeconds(command.get("seconds").getAsLong()))) {
            JsonObject entry = described(message);
            entry.addProperty("number", received.size());
            received.add(message);
            answer.add(entry);
        }
        return answer;
    }

    private PushConsumer push(JsonObject command, List<JsonObject> notes) throws ClientException {
        return provider.newPushConsumerBuilder().setClientConfiguration(settings(command)).setConsumerGroup(text(command, "group"))
            .setSubscriptionExpressions(subscription(command)).setMessageListener(message -> {
                JsonObject entry = described(message);
                notes.add(entry);
                boolean fails = entry.get("body").getAsString().startsWith("fails once") && message.getDeliveryAttempt() == 1;
                return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
    }

    private static JsonObject described(MessageView message) {
        ByteBuffer body = message.getBody();
        JsonObject entry = new JsonObject();
        entry.addProperty("body", StandardCharsets.UTF_8.decode(body).toString());
        entry.addProperty("topic", message.getTopic());
        entry.addProperty("message_id", message.getMessageId().toString());
        entry.addProperty("tag", message.getTag().orElse(null));
        entry.add("keys", new Gson().toJsonTree(new TreeSet<>(message.getKeys())));
        entry.add("properties", new Gson().toJsonTree(message.getProperties()));
        entry.addProperty("message_group", message.getMessageGroup().orElse(null));
        entry.addProperty("attempt", message.getDeliveryAttempt());
        return entry;
    }
}
