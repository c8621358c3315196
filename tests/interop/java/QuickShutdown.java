import java.util.Map;
import java.util.concurrent.Callable;

/**
 * Spares each closed client or server up to three seconds. Apache's service threads look whether they are to stop only when a wait of theirs ends, and
 * ServiceThread.shutdown waits for them; waking them while somebody waits so changes nothing else.
 */
final class QuickShutdown {
    private QuickShutdown() {
    }

    /** Looks from now on, until the thread is interrupted; each look stops all threads for a moment. */
    static Thread start() {
        Thread watcher = new Thread(QuickShutdown::watch, "quick-shutdown");
        watcher.setDaemon(true);
        watcher.start();
        return watcher;
    }

    /** Does some work that may close clients. */
    static <T> T during(Callable<T> work) throws Exception {
        Thread watcher = start();
        try {
            return work.call();
        } finally {
            watcher.interrupt();
        }
    }

    private static void watch() {
        while (true) {
            try {
                Thread.sleep(50);
            } catch (InterruptedException end) {
                return;
            }
            Map<Thread, StackTraceElement[]> stacks = Thread.getAllStackTraces();
            if (stacks.values().stream().anyMatch(QuickShutdown::waitsForService)) {
                stacks.keySet().stream().filter(thread -> thread.getName().startsWith("NettyEventExecutor")).forEach(Thread::interrupt);
            }
        }
    }

    private static boolean waitsForService(StackTraceElement[] stack) {
        for (StackTraceElement frame : stack) {
            String name = frame.getClassName();
            if ((name.endsWith("NettyRemotingClient") || name.endsWith("NettyRemotingServer")) && frame.getMethodName().equals("shutdown")) {
                return true;
            }
        }
        return false;
    }
}
