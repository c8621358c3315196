import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Predicate;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/** Reads one JSON command a line on standard input and answers one JSON line on standard output; every action is Apache's own client's. */
public final class Driver {
    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
    private final Map<String, Consumer> consumers = new ConcurrentHashMap<>();
    /** Those that were stopped, for what they received until then. */
    private final Map<String, Consumer> stopped = new ConcurrentHashMap<>();

    private static final class Consumer {
        final DefaultMQPushConsumer consumer;
        final List<JSONObject> received = new ArrayList<>();
        final AtomicLong count = new AtomicLong();
        volatile long[] latencies;
        final AtomicInteger measured = new AtomicInteger();

        Consumer(DefaultMQPushConsumer consumer) {
            this.consumer = consumer;
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        Driver driver = new Driver();
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
        QuickShutdown.start();
        driver.stopAll();
        System.exit(0);
    }

    private Object perform(JSONObject command) throws Exception {
        switch (command.getString("do")) {
            case "producer":
                return startProducer(command);
            case "send":
                return send(command);
            case "send_many":
                return sendMany(command);
            case "recall":
                return producers.get(command.getString("id")).recallMessage(command.getString("topic"), command.getString("handle"));
            case "consumer":
                return startConsumer(command);
            case "received":
                return received(command);
            case "count":
                return consumers.get(command.getString("id")).count.get();
            case "stamped":
                return stamped(command);
            case "stop":
                return stop(command.getString("id"));
            default:
                throw new IllegalArgumentException("unknown command " + command.getString("do"));
        }
    }

    /** The hook that signs requests, if the command names a user. */
    private static RPCHook signing(JSONObject command) {
        String user = command.getString("user");
        return user == null ? null : new AclClientRPCHook(new SessionCredentials(user, command.getString("password")));
    }

    private Object startProducer(JSONObject command) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(command.getString("group"), signing(command));
        producer.setUseTLS(command.getBooleanValue("tls"));
        producer.setNamesrvAddr(command.getString("namesrv"));
        producer.setPollNameServerInterval(2_000); // a topic made later is found soon
        producer.setInstanceName(command.getString("id"));
        producer.setSendMsgTimeout(command.getIntValue("timeout", 10000));
        if (command.containsKey("compress_over")) {
            producer.setCompressMsgBodyOverHowmuch(command.getIntValue("compress_over"));
        }
        if (command.containsKey("compression")) {
            producer.setCompressType(CompressionType.of(command.getString("compression")));
        }
        producer.setEnableTrace(command.getBooleanValue("trace"));
        producer.start();
        producers.put(command.getString("id"), producer);
        return true;
    }

    private static Message message(JSONObject command) {
        byte[] body = command.containsKey("body64")
            ? Base64.getDecoder().decode(command.getString("body64"))
            : command.getString("body").getBytes(StandardCharsets.UTF_8);
        Message message = new Message(command.getString("topic"), command.getString("tags"), command.getString("keys"), body);
        if (command.containsKey("delay_level")) {
            message.setDelayTimeLevel(command.getIntValue("delay_level"));
        }
        if (command.containsKey("deliver_at")) {
            message.setDeliverTimeMs(command.getLongValue("deliver_at"));
        }
        if (command.containsKey("delay_ms")) {
            message.setDelayTimeMs(command.getLongValue("delay_ms"));
        }
        if (command.containsKey("flag")) {
            message.setFlag(command.getIntValue("flag"));
        }
        JSONObject properties = command.getJSONObject("properties");
        if (properties != null) {
            for (Map.Entry<String, Object> entry : properties.entrySet()) {
                message.putUserProperty(entry.getKey(), String.valueOf(entry.getValue()));
            }
        }
        return message;
    }

    private static JSONObject result(SendResult sent) {
        JSONObject result = new JSONObject();
        result.put("status", sent.getSendStatus().name());
        result.put("msgId", sent.getMsgId());
        result.put("offsetMsgId", sent.getOffsetMsgId());
        result.put("queueId", sent.getMessageQueue().getQueueId());
        result.put("broker", sent.getMessageQueue().getBrokerName());
        result.put("queueOffset", sent.getQueueOffset());
        result.put("transactionId", sent.getTransactionId());
        result.put("regionId", sent.getRegionId());
        result.put("recallHandle", sent.getRecallHandle());
        return result;
    }

    private Object send(JSONObject command) throws Exception {
        DefaultMQProducer producer = producers.get(command.getString("id"));
        String how = command.getString("how") == null ? "sync" : command.getString("how");
        switch (how) {
            case "sync":
                return result(producer.send(message(command)));
            case "queue":
                return result(producer.send(message(command),
                    new MessageQueue(command.getString("topic"), command.getString("broker"), command.getIntValue("queue_id"))));
            case "selector":
                return result(producer.send(message(command), (queues, m, key) -> queues.get(Math.floorMod(key.hashCode(), queues.size())),
                    command.getString("key")));
            case "oneway":
                producer.sendOneway(message(command));
                return true;
            case "async": {
                CountDownLatch done = new CountDownLatch(1);
                Object[] outcome = new Object[1];
                producer.send(message(command), new SendCallback() {
                    @Override public void onSuccess(SendResult sent) {
                        outcome[0] = result(sent);
                        done.countDown();
                    }

                    @Override public void onException(Throwable problem) {
                        outcome[0] = problem;
                        done.countDown();
                    }
                });
                done.await(30, TimeUnit.SECONDS);
                if (outcome[0] instanceof Throwable) {
                    throw new Exception((Throwable) outcome[0]);
                }
                return outcome[0];
            }
            case "batch": {
                List<Message> batch = new ArrayList<>();
                JSONArray items = command.getJSONArray("messages");
                for (int i = 0; i < items.size(); i++) {
                    batch.add(message(items.getJSONObject(i)));
                }
                return result(producer.send(batch));
            }
            default:
                throw new IllegalArgumentException("unknown way to send " + how);
        }
    }

    /** Sends `count` numbered messages; mode sync, async (with `in_flight`) or batch (of `batch`); answers the rate and the median latency. */
    private Object sendMany(JSONObject command) throws Exception {
        DefaultMQProducer producer = producers.get(command.getString("id"));
        String topic = command.getString("topic");
        String prefix = command.getString("prefix") == null ? "" : command.getString("prefix");
        String mode = command.getString("mode") == null ? "async" : command.getString("mode");
        int count = command.getIntValue("count");
        int size = command.getIntValue("size", 0);
        double pace = command.getDoubleValue("rate");
        long[] nanos = new long[count];
        AtomicInteger failed = new AtomicInteger();
        long begin = System.nanoTime();
        if ("sync".equals(mode)) {
            for (int i = 0; i < count; i++) {
                if (pace > 0) {
                    long due = begin + (long) (i * 1e9 / pace);
                    while (System.nanoTime() < due) {
                        Thread.sleep(0, 100000);
                    }
                }
                long start = System.nanoTime();
                producer.send(new Message(topic, body(prefix, i, size)));
                nanos[i] = System.nanoTime() - start;
            }
        } else if ("batch".equals(mode)) {
            int batchSize = command.getIntValue("batch", 100);
            for (int i = 0; i < count; i += batchSize) {
                List<Message> batch = new ArrayList<>(batchSize);
                for (int k = i; k < Math.min(count, i + batchSize); k++) {
                    batch.add(new Message(topic, body(prefix, k, size)));
                }
                long start = System.nanoTime();
                producer.send(batch);
                nanos[i] = System.nanoTime() - start;
            }
        } else if ("threads".equals(mode)) {
            sendByThreads(producer, topic, prefix, size, nanos, command.getIntValue("threads", 64));
        } else {
            int inFlight = command.getIntValue("in_flight", 256);
            Semaphore permits = new Semaphore(inFlight);
            for (int i = 0; i < count; i++) {
                permits.acquire();
                final int index = i;
                final long start = System.nanoTime();
                producer.send(new Message(topic, body(prefix, i, size)), new SendCallback() {
                    @Override public void onSuccess(SendResult sent) {
                        nanos[index] = System.nanoTime() - start;
                        permits.release();
                    }

                    @Override public void onException(Throwable problem) {
                        failed.incrementAndGet();
                        permits.release();
                    }
                });
            }
            permits.acquire(inFlight);
        }
        double seconds = (System.nanoTime() - begin) / 1e9;
        long[] sorted = Arrays.stream(nanos).filter(n -> n > 0).sorted().toArray();
        JSONObject answer = new JSONObject();
        answer.put("seconds", seconds);
        answer.put("rate", count / seconds);
        answer.put("failed", failed.get());
        if (sorted.length > 0) {
            answer.put("p50_us", sorted[sorted.length / 2] / 1000.0);
            answer.put("p99_us", sorted[(int) (sorted.length * 0.99)] / 1000.0);
        }
        return answer;
    }

    /** Threads that each wait for the answer to one message before they send the next. */
    private static void sendByThreads(DefaultMQProducer producer, String topic, String prefix, int size, long[] nanos, int threads)
            throws Exception {
        AtomicInteger next = new AtomicInteger();
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Future<Object>> running = new ArrayList<>();
        for (int thread = 0; thread < threads; thread++) {
            running.add(pool.submit(() -> {
                for (int i = next.getAndIncrement(); i < nanos.length; i = next.getAndIncrement()) {
                    long start = System.nanoTime();
                    producer.send(new Message(topic, body(prefix, i, size)));
                    nanos[i] = System.nanoTime() - start;
                }
                return null;
            }));
        }
        pool.shutdown();
        for (Future<Object> thread : running) {
            thread.get();
        }
    }

    private static byte[] body(String prefix, int index, int size) {
        byte[] text = (prefix + index).getBytes(StandardCharsets.UTF_8);
        return text.length >= size ? text : Arrays.copyOf(text, size);
    }

    private Object startConsumer(JSONObject command) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.getString("group"), signing(command));
        consumer.setUseTLS(command.getBooleanValue("tls"));
        consumer.setNamesrvAddr(command.getString("namesrv"));
        consumer.setPollNameServerInterval(2_000); // a topic made later is found soon
        consumer.setInstanceName(command.getString("id"));
        consumer.setMqClientApiTimeout(60_000); // a machine that is slow for a while is no reason to fail or to close connections
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(command.getString("from") == null ? "CONSUME_FROM_FIRST_OFFSET" : command.getString("from")));
        if (command.containsKey("sql")) {
            consumer.subscribe(command.getString("topic"), MessageSelector.bySql(command.getString("sql")));
        } else {
            consumer.subscribe(command.getString("topic"), command.getString("tags") == null ? "*" : command.getString("tags"));
        }
        consumer.setEnableTrace(command.getBooleanValue("trace"));
        consumer.setMaxReconsumeTimes(command.getIntValue("max_reconsume", -1));
        consumer.setConsumeMessageBatchMaxSize(command.getIntValue("batch", 1));
        if (command.containsKey("pull_batch")) {
            consumer.setPullBatchSize(command.getIntValue("pull_batch"));
        }
        String failPrefix = command.getString("fail_prefix");
        boolean keep = !command.getBooleanValue("count_only");
        Consumer holder = new Consumer(consumer);
        FileOutputStream file = command.containsKey("file") ? new FileOutputStream(command.getString("file"), true) : null;
        Predicate<List<MessageExt>> taken = messages -> {
            boolean fail = false;
            for (MessageExt message : messages) {
                holder.count.incrementAndGet();
                if (file != null) {
                    writeLine(file, message);
                }
                if (holder.latencies != null) {
                    int slot = holder.measured.getAndIncrement();
                    if (slot < holder.latencies.length) {
                        String text = new String(message.getBody(), StandardCharsets.UTF_8).trim();
                        holder.latencies[slot] = System.nanoTime() - Long.parseLong(text);
                    }
                }
                if (keep) {
                    JSONObject seen = seen(message);
                    synchronized (holder.received) {
                        holder.received.add(seen);
                    }
                    fail |= failPrefix != null && seen.getString("body").startsWith(failPrefix);
                }
            }
            return !fail;
        };
        if (command.getBooleanValue("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                taken.test(messages) ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                taken.test(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        consumer.start();
        consumers.put(command.getString("id"), holder);
        return true;
    }

    /** Time, queue and body in one write, so that a killed process has written all of a line or nothing. */
    private static void writeLine(FileOutputStream file, MessageExt message) {
        String body = new String(message.getBody(), StandardCharsets.UTF_8);
        try {
            file.write((System.currentTimeMillis() + " " + message.getQueueId() + " " + body + "\n").getBytes(StandardCharsets.UTF_8));
        } catch (java.io.IOException problem) {
            throw new java.io.UncheckedIOException(problem);
        }
    }

    private static JSONObject seen(MessageExt message) {
        JSONObject seen = new JSONObject();
        seen.put("topic", message.getTopic());
        seen.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
        seen.put("body64", Base64.getEncoder().encodeToString(message.getBody()));
        seen.put("tags", message.getTags());
        seen.put("keys", message.getKeys());
        seen.put("msgId", message.getMsgId());
        seen.put("queueId", message.getQueueId());
        seen.put("queueOffset", message.getQueueOffset());
        seen.put("reconsumeTimes", message.getReconsumeTimes());
        seen.put("properties", message.getProperties());
        seen.put("flag", message.getFlag());
        seen.put("bornTimestamp", message.getBornTimestamp());
        seen.put("storeTimestamp", message.getStoreTimestamp());
        seen.put("at", System.currentTimeMillis());
        return seen;
    }

    private Object received(JSONObject command) {
        String id = command.getString("id");
        Consumer holder = consumers.containsKey(id) ? consumers.get(id) : stopped.get(id);
        synchronized (holder.received) {
            return new ArrayList<>(holder.received.subList(Math.min(command.getIntValue("from", 0), holder.received.size()), holder.received.size()));
        }
    }

    /** Sends time stamps at a rate and answers how long they took to the listener of `consumer`, without the first fifth. */
    private Object stamped(JSONObject command) throws Exception {
        DefaultMQProducer producer = producers.get(command.getString("id"));
        Consumer holder = consumers.get(command.getString("consumer"));
        int count = command.getIntValue("count");
        double rate = command.getDoubleValue("rate");
        holder.measured.set(0);
        holder.latencies = new long[count];
        long begin = System.nanoTime();
        for (int i = 0; i < count; i++) {
            long wait = begin + (long) (i * 1e9 / rate) - System.nanoTime();
            if (wait > 0) {
                java.util.concurrent.locks.LockSupport.parkNanos(wait);
            }
            byte[] stamp = Long.toString(System.nanoTime()).getBytes(StandardCharsets.UTF_8);
            producer.send(new Message(command.getString("topic"), stamp), new SendCallback() {
                @Override public void onSuccess(SendResult sent) {
                }

                @Override public void onException(Throwable problem) {
                    holder.measured.incrementAndGet();
                }
            });
        }
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (holder.measured.get() < count && System.nanoTime() < deadline) {
            Thread.sleep(5);
        }
        long[] sorted = Arrays.copyOfRange(holder.latencies, count / 5, count);
        Arrays.sort(sorted);
        JSONObject answer = new JSONObject();
        answer.put("p50_us", sorted[sorted.length / 2] / 1000.0);
        answer.put("p99_us", sorted[(int) (sorted.length * 0.99)] / 1000.0);
        return answer;
    }

    private Object stop(String id) {
        DefaultMQProducer producer = producers.remove(id);
        if (producer != null) {
            producer.shutdown();
        }
        Consumer holder = consumers.remove(id);
        if (holder != null) {
            holder.consumer.shutdown();
            stopped.put(id, holder);
        }
        return producer != null || holder != null;
    }

    private void stopAll() {
        for (String id : new ArrayList<>(producers.keySet())) {
            stop(id);
        }
        for (String id : new ArrayList<>(consumers.keySet())) {
            stop(id);
        }
    }
}
