package orders;

import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The order service as its customers see it, and a bank for it. */
final class OrderService implements AutoCloseable {
    private static final HttpClient HTTP = HttpClient.newHttpClient();
    private static final Pattern NUMBER = Pattern.compile("\"number\": ?\"([^\"]*)\"");
    private static final Pattern STATE = Pattern.compile("\"state\": ?\"([^\"]*)\"");

    private final TestBroker broker;
    private final List<String> charged = new CopyOnWriteArrayList<>();
    private final HttpServer bank;
    private final Process process;
    private final String url;

    /** Starts the service and waits until it answers; the bank's first answers are errors. */
    OrderService(TestBroker broker, int broken) throws Exception {
        this.broker = broker;
        bank = startBank(new AtomicInteger(broken));
        int port;
        try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            port = free.getLocalPort();
        }
        url = "http://127.0.0.1:" + port + "/orders/";
        String program = System.getenv().getOrDefault("UVICORN", "uvicorn");
        List<String> command = new ArrayList<>(Arrays.asList(program.split(" ")));
        command.addAll(List.of("--app-dir=../orders", "--factory", "app:from_environment"));
        command.addAll(List.of("--port=" + port, "--log-level=error"));
        ProcessBuilder builder = new ProcessBuilder(command).inheritIO();
        builder.environment().putAll(Map.of(
            "NAMESRV_ADDR", broker.namesrv(),
            "BANK_URL", "http://127.0.0.1:" + bank.getAddress().getPort(),
            "ORDERS_DATABASE", ":memory:"));
        process = builder.start();
        becomes("none", "unknown", 0);
    }

    private HttpServer startBank(AtomicInteger broken) throws IOException {
        InetSocketAddress anywhere = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
        HttpServer server = HttpServer.create(anywhere, 0);
        server.createContext("/charges", exchange -> {
            byte[] body = exchange.getRequestBody().readAllBytes();
            boolean works = broken.getAndDecrement() <= 0;
            if (works) {
                charged.add(found(NUMBER, new String(body, StandardCharsets.UTF_8)));
            }
            exchange.sendResponseHeaders(works ? 200 : 503, -1);
            exchange.close();
        });
        server.start();
        return server;
    }

    /** Places an order. */
    void place(String number) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(url + number))
            .header("content-type", "application/json")
            .POST(HttpRequest.BodyPublishers.ofString("{\"cents\": 1999}"))
            .build();
        HttpResponse<String> answer = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() != 201) {
            throw new AssertionError(number + ": " + answer.body());
        }
    }

    /** The state of an order; "unknown" if there is none, "away" while the service is. */
    String state(String number) throws InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(url + number)).build();
        try {
            return found(STATE, HTTP.send(request, HttpResponse.BodyHandlers.ofString()).body());
        } catch (IOException error) {
            return "away";
        }
    }

    /** Waits for a state; the broker's clock goes on by so many seconds between two looks. */
    void becomes(String number, String wanted, int advance) throws Exception {
        long end = System.nanoTime() + 30_000_000_000L;
        for (String now = state(number); !now.equals(wanted); now = state(number)) {
            if (System.nanoTime() > end) {
                throw new AssertionError("order " + number + " is " + now + ", not " + wanted);
            }
            if (advance > 0) {
                broker.ask("/v1/clock", "{\"advance\": " + advance + "}");
            }
            Thread.sleep(20);
        }
    }

    /** The orders that the bank was paid for. */
    List<String> charged() {
        return List.copyOf(charged);
    }

    @Override
    public void close() throws Exception {
        process.destroy();
        process.waitFor();
        bank.stop(0);
    }

    private static String found(Pattern pattern, String json) {
        Matcher matcher = pattern.matcher(json);
        return matcher.find() ? matcher.group(1) : "unknown";
    }
}
