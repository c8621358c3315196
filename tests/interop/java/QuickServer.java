import java.util.Arrays;

/** Starts a server of Apache's, its class and arguments given; nothing changes but that a stop does not wait in vain (QuickShutdown). */
public final class QuickServer {
    private QuickServer() {
    }

    public static void main(String[] args) throws Exception {
        Runtime.getRuntime().addShutdownHook(new Thread(QuickShutdown::start));
        Class.forName(args[0]).getMethod("main", String[].class).invoke(null, (Object) Arrays.copyOfRange(args, 1, args.length));
    }
}
