import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Apache's lite pull consumer and its push consumer in POP mode; JSON commands on standard input as in Driver. */
public final class Consumers {
    private final Map<String, Running> running = new ConcurrentHashMap<>();

    private abstract static class Running {
        final List<JSONObject> received = new ArrayList<>();
        final AtomicLong count = new AtomicLong();

        void take(List<MessageExt> messages, boolean countOnly) {
            if (!countOnly) {
                synchronized (received) {
                    for (MessageExt message : messages) {
                        JSONObject entry = new JSONObject();
                        entry.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
                        entry.put("queueId", message.getQueueId());
                        entry.put("offset", message.getQueueOffset());
                        entry.put("times", message.getReconsumeTimes());
                        received.add(entry);
                    }
                }
            }
            count.addAndGet(messages.size());
        }

        Object assignment() throws Exception {
            throw new UnsupportedOperationException("it owns no queues");
        }

        abstract void stop() throws Exception;
    }

    private static final class Lite extends Running {
        final DefaultLitePullConsumer consumer;
        final Thread thread;
        volatile boolean ending;

        Lite(JSONObject command) throws Exception {
            consumer = new DefaultLitePullConsumer(command.getString("group"));
            consumer.setNamesrvAddr(command.getString("namesrv"));
            consumer.setPollNameServerInterval(2_000); // a topic made later is found soon
            consumer.setInstanceName(command.getString("id"));
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setAutoCommitIntervalMillis(1000);
            if (command.containsKey("batch")) {
                consumer.setPullBatchSize(command.getIntValue("batch"));
            }
            consumer.subscribe(command.getString("topic"), "*");
            consumer.start();
            boolean countOnly = command.getBooleanValue("count_only");
            thread = new Thread(() -> {
                while (!ending) {
                    take(consumer.poll(200), countOnly);
                }
            });
            thread.setDaemon(true);
            thread.start();
        }

        @Override
        Object assignment() throws Exception {
            TreeSet<Integer> queues = new TreeSet<>();
            for (MessageQueue queue : consumer.assignment()) {
                queues.add(queue.getQueueId());
            }
            return new ArrayList<>(queues);
        }

        @Override
        void stop() throws Exception {
            ending = true;
            thread.join();
            consumer.commit();
            consumer.shutdown();
        }
    }

    private static final class Pop extends Running {
        final DefaultMQPushConsumer consumer;

        Pop(JSONObject command) throws Exception {
            setMode(command);
            consumer = new DefaultMQPushConsumer(command.getString("group"));
            consumer.setNamesrvAddr(command.getString("namesrv"));
            consumer.setPollNameServerInterval(2_000); // a topic made later is found soon
            consumer.setInstanceName(command.getString("id"));
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setClientRebalance(false);
            consumer.setPopInvisibleTime(command.getLongValue("invisible_ms", 60000));
            if (command.containsKey("batch")) {
                consumer.setPopBatchNums(command.getIntValue("batch"));
                consumer.setConsumeMessageBatchMaxSize(command.getIntValue("batch"));
            }
            consumer.subscribe(command.getString("topic"), "*");
            boolean countOnly = command.getBooleanValue("count_only");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                take(messages, countOnly);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
        }

        static void setMode(JSONObject command) throws Exception {
            DefaultMQAdminExt admin = new DefaultMQAdminExt();
            admin.setNamesrvAddr(command.getString("namesrv"));
            admin.setInstanceName("admin" + command.getString("id"));
            admin.start();
            try {
                admin.setMessageRequestMode(command.getString("broker"), command.getString("topic"), command.getString("group"),
                    MessageRequestMode.POP, 0, 10000);
            } finally {
                admin.shutdown();
            }
        }

        @Override
        void stop() {
            consumer.shutdown();
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        Consumers consumers = new Consumers();
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
                answer.put("ok", QuickShutdown.during(() -> consumers.perform(command)));
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
            case "lite":
                running.put(id, new Lite(command));
                return true;
            case "pop":
                running.put(id, new Pop(command));
                return true;
            case "assignment":
                return running.get(id).assignment();
            case "received": {
                List<JSONObject> received = running.get(id).received;
                synchronized (received) {
                    return new ArrayList<>(received);
                }
            }
            case "count":
                return running.get(id).count.get();
            case "stop":
                running.remove(id).stop();
                return true;
            default:
                throw new IllegalArgumentException("unknown command " + command.getString("do"));
        }
    }
}
