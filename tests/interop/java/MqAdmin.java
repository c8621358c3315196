import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs mqadmin commands one after the other in one process: a JSON line with "args" (and "user" with "password", who signs) in, a JSON line with what the command printed out. */
public final class MqAdmin {
    public static void main(String[] arguments) throws Exception {
        // A command may keep a client that it has shut down: each time there are new ones.
        Field known = MQAdminStartup.class.getDeclaredField("SUB_COMMANDS");
        known.setAccessible(true);
        List<?> commands = (List<?>) known.get(null);
        PrintStream answers = System.out;
        PrintStream errors = System.err;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        answers.println("{\"ready\":true}");
        answers.flush();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject command = JSON.parseObject(line);
            if ("exit".equals(command.getString("do"))) {
                break;
            }
            String[] args = command.getList("args", String.class).toArray(new String[0]);
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(capture);
            System.setErr(capture);
            JSONObject answer = new JSONObject();
            try {
                commands.clear();
                String user = command.getString("user");
                RPCHook signing = user == null
                    ? null
                    : new AclClientRPCHook(new SessionCredentials(user, command.getString("password")));
                QuickShutdown.during(() -> {
                    MQAdminStartup.main0(args, signing);
                    return true;
                });
                capture.flush();
                answer.put("ok", printed.toString(StandardCharsets.UTF_8));
            } catch (Throwable failure) {
                answer.put("error", failure.getClass().getName());
                answer.put("message", String.valueOf(failure.getMessage()));
            } finally {
                System.setOut(answers);
                System.setErr(errors);
            }
            answers.println(answer.toJSONString());
            answers.flush();
        }
        System.exit(0);
    }
}
