import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Members of a group of Apache's push consumers, as Apache ships them, which note when each queue came to each of them. One JSON command a line. */
public final class Members {
    private final List<DefaultMQPushConsumer> consumers = new ArrayList<>();
    private final Map<String, Map<Integer, long[]>> seen = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        System.setProperty("rocketmq.client.rebalance.waitInterval", "20000"); // Apache's default, whatever the command line says
        PrintStream out = System.out;
        System.setOut(System.err);
        Members members = new Members();
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
                answer.put("ok", members.perform(command));
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
        switch (command.getString("do")) {
            case "join":
                for (Object name : command.getJSONArray("names")) {
                    join((String) name, command);
                }
                return true;
            case "mark":
                seen.values().forEach(queues -> queues.values().forEach(times -> times[0] = 0));
                return true;
            case "rows":
                return rows();
            case "leave":
                consumers.forEach(DefaultMQPushConsumer::shutdown);
                return true;
            default:
                throw new IllegalArgumentException("unknown command " + command.getString("do"));
        }
    }

    private void join(String name, JSONObject command) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.getString("group"));
        consumer.setNamesrvAddr(command.getString("namesrv"));
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName(name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.subscribe(command.getString("topic"), "*");
        Map<Integer, long[]> queues = seen.computeIfAbsent(name, key -> new ConcurrentHashMap<>());
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                note(queues.computeIfAbsent(message.getQueueId(), key -> new long[2]));
            }
            try {
                Thread.sleep(2);
            } catch (InterruptedException end) {
                Thread.currentThread().interrupt();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        consumers.add(consumer);
    }

    private static synchronized void note(long[] times) {
        times[1] = System.nanoTime();
        if (times[0] == 0) {
            times[0] = times[1];
        }
    }

    /** Member, queue, when its first message since the mark came there, and its last; in nanoseconds of the monotonic clock. */
    private JSONArray rows() {
        JSONArray rows = new JSONArray();
        seen.forEach((name, queues) -> queues.forEach((queue, times) -> rows.add(JSONArray.of(name, queue, times[0], times[1]))));
        return rows;
    }
}
