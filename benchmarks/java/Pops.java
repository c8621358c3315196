import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.AckStatus;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/** Pops and acknowledgements by Apache's client below its push consumer: what a simple consumer does. One JSON command a line. */
public final class Pops {
    private static final long PATIENCE = 30_000;
    private final MQClientAPIImpl api;

    private Pops(MQClientAPIImpl api) {
        this.api = api;
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Pops pops = null;
        out.println("{\"ready\":true}");
        out.flush();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject answer = new JSONObject();
            try {
                JSONObject command = JSON.parseObject(line);
                if ("exit".equals(command.getString("do"))) {
                    break;
                }
                if (pops == null) {
                    pops = new Pops(connect(command.getString("namesrv")));
                }
                answer.put("ok", pops.take(command));
            } catch (Throwable problem) {
                answer.put("error", problem.getClass().getSimpleName());
                answer.put("message", String.valueOf(problem.getMessage()));
            }
            out.println(answer.toJSONString());
            out.flush();
        }
        System.exit(0);
    }

    private static MQClientAPIImpl connect(String namesrv) throws Exception {
        ClientConfig config = new ClientConfig();
        config.setNamesrvAddr(namesrv);
        config.setInstanceName("pops");
        MQClientInstance instance = MQClientManager.getInstance().getOrCreateMQClientInstance(config);
        instance.start();
        return instance.getMQClientAPIImpl();
    }

    /** Takes `count` messages, `tasks` pops at a time, each acknowledged before the next; answers messages per second to the last acknowledgement. */
    private double take(JSONObject command) throws Exception {
        long count = command.getLongValue("count");
        AtomicLong taken = new AtomicLong();
        AtomicLong first = new AtomicLong();
        AtomicLong last = new AtomicLong();
        ExecutorService tasks = Executors.newCachedThreadPool();
        try {
            List<Future<Object>> ends = new ArrayList<>();
            for (int i = 0; i < command.getIntValue("tasks"); i++) {
                ends.add(tasks.submit(() -> {
                    while (taken.get() < count) {
                        List<MessageExt> messages = pop(command);
                        first.compareAndSet(0, System.nanoTime());
                        taken.addAndGet(messages.size());
                        if (!messages.isEmpty()) {
                            acknowledge(command, messages);
                            last.accumulateAndGet(System.nanoTime(), Math::max);
                        }
                    }
                    return null;
                }));
            }
            for (Future<Object> end : ends) {
                end.get();
            }
            return taken.get() * 1e9 / (last.get() - first.get());
        } finally {
            tasks.shutdown();
        }
    }

    private List<MessageExt> pop(JSONObject command) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(command.getString("group"));
        header.setTopic(command.getString("topic"));
        header.setQueueId(-1);
        header.setMaxMsgNums(command.getIntValue("batch"));
        header.setInvisibleTime(60_000);
        header.setPollTime(1000);
        header.setBornTime(System.currentTimeMillis());
        header.setExpType("TAG");
        header.setExp("*");
        header.setOrder(false);
        CompletableFuture<PopResult> answer = new CompletableFuture<>();
        api.popMessageAsync("broker-a", command.getString("broker"), header, PATIENCE, new PopCallback() {
            @Override
            public void onSuccess(PopResult result) {
                answer.complete(result);
            }

            @Override
            public void onException(Throwable problem) {
                answer.completeExceptionally(problem);
            }
        });
        List<MessageExt> messages = answer.get(PATIENCE, TimeUnit.MILLISECONDS).getMsgFoundList();
        return messages == null ? new ArrayList<>() : messages;
    }

    private void acknowledge(JSONObject command, List<MessageExt> messages) throws Exception {
        List<String> handles = new ArrayList<>();
        for (MessageExt message : messages) {
            handles.add(message.getProperty(MessageConst.PROPERTY_POP_CK));
        }
        List<CompletableFuture<AckResult>> answers = new ArrayList<>();
        if (command.getBooleanValue("single")) {
            for (String handle : handles) {
                answers.add(one(command, handle));
            }
        } else if (!handles.isEmpty()) {
            Answer answer = new Answer();
            api.batchAckMessageAsync(command.getString("broker"), PATIENCE, answer, command.getString("topic"), command.getString("group"), handles);
            answers.add(answer.result);
        }
        for (CompletableFuture<AckResult> answer : answers) {
            if (answer.get(PATIENCE, TimeUnit.MILLISECONDS).getStatus() != AckStatus.OK) {
                throw new IllegalStateException("an acknowledgement was refused");
            }
        }
    }

    private CompletableFuture<AckResult> one(JSONObject command, String handle) throws Exception {
        String[] parts = ExtraInfoUtil.split(handle);
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setConsumerGroup(command.getString("group"));
        header.setTopic(ExtraInfoUtil.getRealTopic(parts, command.getString("topic"), command.getString("group")));
        header.setQueueId(ExtraInfoUtil.getQueueId(parts));
        header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
        header.setExtraInfo(handle);
        Answer answer = new Answer();
        api.ackMessageAsync(command.getString("broker"), PATIENCE, answer, header);
        return answer.result;
    }

    private static final class Answer implements AckCallback {
        final CompletableFuture<AckResult> result = new CompletableFuture<>();

        @Override
        public void onSuccess(AckResult answer) {
            result.complete(answer);
        }

        @Override
        public void onException(Throwable problem) {
            result.completeExceptionally(problem);
        }
    }
}
