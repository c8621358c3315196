import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Transactions, and requests with replies, of Apache's own client: one JSON command a line, one JSON line as the answer. */
public final class Transactions {
    private final Map<String, TransactionMQProducer> producers = new ConcurrentHashMap<>();
    private final Map<String, List<JSONObject>> checked = new ConcurrentHashMap<>();
    private final Map<String, DefaultMQPushConsumer> repliers = new ConcurrentHashMap<>();
    private final Map<String, DefaultMQProducer> replying = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        Transactions driver = new Transactions();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        out.println("{\"ready\":true}");
        out.flush();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject answer = new JSONObject();
            try {
                JSONObject command = JSON.parseObject(line);
                if ("exit".equals(command.getString("do"))) {
                    break;
                }
                answer.put("ok", QuickShutdown.during(() -> driver.perform(command)));
            } catch (Throwable problem) {
                answer.put("error", problem.getClass().getSimpleName());
                answer.put("message", String.valueOf(problem.getMessage()));
            }
            out.println(answer.toJSONString());
            out.flush();
        }
        System.exit(0);
    }

    private Object perform(JSONObject command) throws Exception {
        String id = command.getString("id");
        switch (command.getString("do")) {
            case "producer":
                return producer(id, command);
            case "transaction":
                return transaction(id, command);
            case "checked":
                return checked.get(id);
            case "request":
                Message request = new Message(command.getString("topic"), bytes(command.getString("body")));
                return described((MessageExt) producers.get(id).request(request, command.getLongValue("timeout")));
            case "replier":
                return replier(id, command);
            case "many":
                return many(id, command);
            case "accumulated":
                return accumulated(command);
            case "stop":
                if (producers.containsKey(id)) {
                    producers.remove(id).shutdown();
                }
                if (repliers.containsKey(id)) {
                    repliers.remove(id).shutdown();
                    replying.remove(id).shutdown();
                }
                return true;
            default:
                throw new IllegalArgumentException("no such command");
        }
    }

    private Object producer(String id, JSONObject command) throws Exception {
        List<JSONObject> asked = new CopyOnWriteArrayList<>();
        String answer = command.getString("answer");
        TransactionMQProducer producer = new TransactionMQProducer(command.getString("group"));
        producer.setNamesrvAddr(command.getString("namesrv"));
        producer.setPollNameServerInterval(2_000); // a topic made later is found soon
        producer.setInstanceName(id);
        producer.setSendMsgTimeout(20000);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                asked.add(described(message));
                if ("NEVER".equals(answer)) {
                    try {
                        Thread.sleep(Long.MAX_VALUE);
                    } catch (InterruptedException ended) {
                        return LocalTransactionState.UNKNOW;
                    }
                }
                return LocalTransactionState.valueOf(answer);
            }
        });
        producer.start();
        checked.put(id, asked);
        producers.put(id, producer);
        return true;
    }

    private Object transaction(String id, JSONObject command) throws Exception {
        Message message = new Message(command.getString("topic"), "TagT", command.getString("key"), bytes(command.getString("body")));
        LocalTransactionState state = LocalTransactionState.valueOf(command.getString("local"));
        TransactionSendResult result = producers.get(id).sendMessageInTransaction(message, state);
        JSONObject answer = new JSONObject();
        answer.put("status", result.getSendStatus().name());
        answer.put("state", result.getLocalTransactionState().name());
        answer.put("msgId", result.getMsgId());
        answer.put("transactionId", result.getTransactionId());
        return answer;
    }

    /** Committed transactions per second of several threads. */
    private Object many(String id, JSONObject command) throws Exception {
        int threads = command.getIntValue("threads");
        int share = command.getIntValue("count") / threads;
        TransactionMQProducer producer = producers.get(id);
        byte[] body = new byte[command.getIntValue("size")];
        List<Thread> running = new ArrayList<>();
        long begin = System.nanoTime();
        for (int number = 0; number < threads; number++) {
            Thread thread = new Thread(() -> {
                try {
                    for (int turn = 0; turn < share; turn++) {
                        producer.sendMessageInTransaction(new Message(command.getString("topic"), body), LocalTransactionState.COMMIT_MESSAGE);
                    }
                } catch (Exception problem) {
                    throw new IllegalStateException(problem);
                }
            });
            thread.start();
            running.add(thread);
        }
        for (Thread thread : running) {
            thread.join();
        }
        return share * threads * 1e9 / (System.nanoTime() - begin);
    }

    /** Messages per second of a producer that joins them into batches. */
    private Object accumulated(JSONObject command) throws Exception {
        int count = command.getIntValue("count");
        byte[] body = new byte[command.getIntValue("size")];
        DefaultMQProducer producer = new DefaultMQProducer(command.getString("group"));
        producer.setNamesrvAddr(command.getString("namesrv"));
        producer.setPollNameServerInterval(2_000); // a topic made later is found soon
        producer.setInstanceName("accumulated" + System.nanoTime());
        producer.setAutoBatch(true);
        producer.start();
        try {
            Semaphore places = new Semaphore(20000);
            AtomicInteger failed = new AtomicInteger();
            SendCallback callback = new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    places.release();
                }

                @Override
                public void onException(Throwable problem) {
                    failed.incrementAndGet();
                    places.release();
                }
            };
            long begin = System.nanoTime();
            for (int number = 0; number < count; number++) {
                places.acquire();
                producer.send(new Message(command.getString("topic"), body), callback);
            }
            places.acquire(20000);
            if (failed.get() > 0) {
                throw new IllegalStateException(failed.get() + " sends failed");
            }
            return count * 1e9 / (System.nanoTime() - begin);
        } finally {
            producer.shutdown();
        }
    }

    private Object replier(String id, JSONObject command) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(command.getString("group") + "_p");
        producer.setNamesrvAddr(command.getString("namesrv"));
        producer.setPollNameServerInterval(2_000); // a topic made later is found soon
        producer.setInstanceName(id + "p");
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.getString("group"));
        consumer.setNamesrvAddr(command.getString("namesrv"));
        consumer.setPollNameServerInterval(2_000); // a topic made later is found soon
        consumer.setInstanceName(id);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(command.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    String body = "reply to " + new String(message.getBody(), StandardCharsets.UTF_8);
                    producer.send(MessageUtil.createReplyMessage(message, bytes(body)), 10000);
                } catch (Exception problem) {
                    problem.printStackTrace();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        repliers.put(id, consumer);
        replying.put(id, producer);
        return true;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static JSONObject described(MessageExt message) {
        JSONObject found = new JSONObject();
        found.put("topic", message.getTopic());
        found.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
        found.put("msgId", message.getMsgId());
        found.put("transactionId", message.getTransactionId());
        found.put("keys", message.getKeys());
        found.put("properties", message.getProperties());
        return found;
    }
}
