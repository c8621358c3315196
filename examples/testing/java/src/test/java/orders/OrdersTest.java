package orders;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/** Tests of an application in Java, with Apache's client. */
class OrdersTest {
    @RegisterExtension
    static final TestBroker BROKER = new TestBroker();

    private DefaultMQProducer shop;

    @BeforeEach
    void start() throws Exception {
        BROKER.ask("/v1/seed", "{\"topics\": {\"orders\": 2}}");
        shop = new DefaultMQProducer("shop");
        shop.setNamesrvAddr(BROKER.namesrv());
        shop.setInstanceName("shop" + System.nanoTime());
        shop.setSendMsgMaxTimeoutPerRequest(5_000); // a lost answer is not waited for all the time
        shop.start();
    }

    @AfterEach
    void stop() {
        shop.shutdown();
    }

    private SendStatus send(String body, int delayLevel) throws Exception {
        Message message = new Message("orders", "new", "42", body.getBytes(StandardCharsets.UTF_8));
        message.setDelayTimeLevel(delayLevel);
        return shop.send(message, 20_000).getSendStatus();
    }

    private String stored(int count) throws Exception {
        return BROKER.ask(
            "/v1/wait", "{\"for\": \"stored\", \"topic\": \"orders\", \"count\": " + count + "}");
    }

    @Test
    void anOrderIsStored() throws Exception {
        assertEquals(SendStatus.SEND_OK, send("42 bananas", 0));
        assertTrue(stored(1).contains("\"body\": \"42 bananas\""));
    }

    @Test
    void anOrderIsThereTwiceWhenTheAnswerIsLost() throws Exception {
        BROKER.ask(
            "/v1/faults",
            "{\"code\": \"send\", \"times\": 1, \"action\": \"close_connection\", \"served\": true}");
        send("42 bananas", 0);
        stored(2);
    }

    @Test
    void aReminderComesAfterHalfAnHour() throws Exception {
        send("pay, please", 16);
        BROKER.ask("/v1/clock", "{\"advance\": 1801}");
        stored(1);
    }

    @Test
    void ordersSurviveACrashOfTheBroker() throws Exception {
        send("1", 0);
        BROKER.ask("/v1/broker/kill", "{}");
        BROKER.ask("/v1/broker/start", "{}");
        stored(1);
        send("2", 0);
        stored(2);
    }
}
