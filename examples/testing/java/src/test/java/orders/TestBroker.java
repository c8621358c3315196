package orders;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/** A JUnit extension: one `rocketmq test-broker` for all tests, new for each of them. */
public final class TestBroker implements BeforeEachCallback, AfterEachCallback {
    private static final HttpClient HTTP = HttpClient.newHttpClient();
    private static String namesrv;
    private static String control;

    @Override
    public void beforeEach(ExtensionContext context) throws Exception {
        start();
        ask("/v1/broker/reset", "{}");
    }

    /** Fails the test if a fault met nothing. */
    @Override
    public void afterEach(ExtensionContext context) throws Exception {
        ask("/v1/check", "{}");
    }

    /** Where clients find the name server. */
    public String namesrv() {
        return namesrv;
    }

    /** Sends a request to the control endpoint; fails the test unless it is done. */
    public String ask(String path, String json) throws IOException, InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(control + path))
            .header("content-type", "application/json")
            .POST(HttpRequest.BodyPublishers.ofString(json))
            .build();
        HttpResponse<String> answer = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() != 200) {
            throw new AssertionError(path + ": " + answer.body());
        }
        return answer.body();
    }

    private static synchronized void start() throws Exception {
        if (control != null) {
            return;
        }
        Path ready = Files.createTempDirectory("rocketmq").resolve("ready.json");
        String program = System.getenv().getOrDefault("ROCKETMQ_TEST_BROKER", "rocketmq test-broker");
        List<String> command = new ArrayList<>(List.of(program.split(" ")));
        command.addAll(List.of("--control=127.0.0.1:0", "--virtual-clock", "--ready-file=" + ready));
        Process process = new ProcessBuilder(command).inheritIO().start();
        Runtime.getRuntime().addShutdownHook(new Thread(process::destroy));
        for (int tries = 0; !Files.exists(ready); tries++) {
            if (tries == 3000 || !process.isAlive()) {
                throw new IllegalStateException("the test broker did not start");
            }
            Thread.sleep(10);
        }
        String text = Files.readString(ready);
        namesrv = member(text, "namesrv");
        control = member(text, "control");
    }

    private static String member(String json, String name) {
        Matcher found = Pattern.compile('"' + name + "\": \"([^\"]*)\"").matcher(json);
        if (!found.find()) {
            throw new IllegalStateException(json);
        }
        return found.group(1);
    }
}
