package orders;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/**
 * Tests of the order service, which is another process: they order over HTTP, are the bank, and
 * let the broker fail and time pass by the control endpoint.
 */
class OrderServiceTest {
    @RegisterExtension
    static final TestBroker BROKER = new TestBroker();

    private OrderService shop;

    private void open(int broken) throws Exception {
        BROKER.ask("/v1/seed", "{\"topics\": [\"orders-placed\", \"orders-due\"]}");
        shop = new OrderService(BROKER, broken);
    }

    @AfterEach
    void close() throws Exception {
        shop.close();
    }

    @Test
    void anOrderIsPaid() throws Exception {
        open(0);
        shop.place("42");
        shop.becomes("42", "paid", 0);
        assertEquals(List.of("42"), shop.charged());
    }

    @Test
    void aPaymentIsTriedAgainWhileTheBankIsAway() throws Exception {
        open(2);
        shop.place("42");
        shop.becomes("42", "paid", 10);
        assertEquals(List.of("42"), shop.charged());
    }

    @Test
    void anOrderThatIsNotPaidIsCancelledAfterHalfAnHour() throws Exception {
        open(1000);
        shop.place("42");
        BROKER.ask("/v1/clock", "{\"advance\": 1790}");
        assertEquals("placed", shop.state("42"));
        shop.becomes("42", "cancelled", 1);
        assertEquals(List.of(), shop.charged());
    }

    @Test
    void anOrderWhoseCommitIsLostIsPaidAllTheSame() throws Exception {
        open(0);
        BROKER.ask(
            "/v1/faults",
            "{\"code\": \"end_transaction\", \"times\": 1, \"action\": \"drop_request\"}");
        shop.place("42");
        shop.becomes("42", "paid", 10);
        assertEquals(List.of("42"), shop.charged());
    }

    @Test
    void ordersArePaidAfterACrashOfTheBroker() throws Exception {
        open(0);
        shop.place("41");
        shop.becomes("41", "paid", 0);
        BROKER.ask("/v1/broker/kill", "{}");
        BROKER.ask("/v1/broker/start", "{}");
        shop.place("42");
        shop.becomes("42", "paid", 0);
        assertEquals(List.of("41", "42"), shop.charged());
    }
}
