import com.alibaba.fastjson2.JSON;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.namesrv.NamesrvStartup;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Loads what Apache's servers, clients and tools and the programs here load, by using all of them once in one process, for an archive of classes. Arguments:
 * the name server's address, its configuration, the broker's.
 */
public final class Rehearsal {
    private static final String TOPIC = "Rehearsal";

    private Rehearsal() {
    }

    public static void main(String[] args) {
        try {
            rehearse(args);
        } catch (Throwable problem) {
            problem.printStackTrace();
            Runtime.getRuntime().halt(1); // the threads of the servers go on for ever
        }
        Runtime.getRuntime().halt(0);
    }

    private static void rehearse(String[] args) throws Exception {
        String namesrv = args[0];
        NamesrvStartup.main(new String[] {"-c", args[1]});
        BrokerStartup.main(new String[] {"-c", args[2]});
        for (String program : new String[] {"Driver", "Consumers", "MqAdmin", "Transactions", "QuickServer", "QuickShutdown"}) {
            Class.forName(program);
        }
        produce(namesrv);
        transact(namesrv);
        consume(namesrv);
        for (String command : new String[] {"clusterList", "topicList", "brokerStatus -c DefaultCluster", "topicRoute -t " + TOPIC}) {
            MQAdminStartup.main0((command + " -n " + namesrv).split(" "), null);
        }
    }

    private static void produce(String namesrv) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("rehearsal");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(30_000);
        producer.setRetryTimesWhenSendFailed(10);
        producer.start();
        Message message = new Message(TOPIC, "tag", "key", JSON.parseObject("{\"body\":1}").toJSONString().getBytes(StandardCharsets.UTF_8));
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (true) {
            try {
                producer.send(message);
                break;
            } catch (MQClientException early) { // the broker is not registered yet
                if (System.nanoTime() > end) {
                    throw early;
                }
                Thread.sleep(100);
            }
        }
        producer.sendOneway(message);
    }

    private static void transact(String namesrv) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("rehearsal-transactions");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(30_000);
        producer.setTransactionListener(new TransactionListener() {
            @Override public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        producer.sendMessageInTransaction(new Message(TOPIC, new byte[1]), null);
    }

    private static void consume(String namesrv) throws Exception {
        CountDownLatch came = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("rehearsal-push");
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            came.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultLitePullConsumer lite = new DefaultLitePullConsumer("rehearsal-lite");
        lite.setNamesrvAddr(namesrv);
        lite.subscribe(TOPIC, "*");
        lite.start();
        lite.poll(100);
        if (!came.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("nothing was consumed");
        }
    }
}
