import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.parser.SelectorParser;

/** Evaluates SQL92 expressions with Apache's own classes: a JSON line with an expression, maps of properties and a number of rounds. */
public final class Filters {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.out.println("{\"ready\":true}");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject command = JSON.parseObject(line);
            if ("exit".equals(command.getString("do"))) {
                break;
            }
            JSONArray given = command.getJSONArray("properties");
            MessageEvaluationContext[] messages = new MessageEvaluationContext[given.size()];
            for (int i = 0; i < messages.length; i++) {
                Map<String, String> properties = new HashMap<>();
                for (Map.Entry<String, Object> entry : given.getJSONObject(i).entrySet()) {
                    properties.put(entry.getKey(), String.valueOf(entry.getValue()));
                }
                messages[i] = new MessageEvaluationContext(properties);
            }
            Expression expression = SelectorParser.parse(command.getString("expression"));
            int rounds = command.getIntValue("rounds");
            long matched = 0;
            long begin = System.nanoTime();
            for (int round = 0; round < rounds; round++) {
                for (MessageEvaluationContext message : messages) {
                    try {
                        matched += Boolean.TRUE.equals(expression.evaluate(message)) ? 1 : 0;
                    } catch (Exception problem) {
                        matched += 0;
                    }
                }
            }
            JSONObject answer = new JSONObject();
            JSONObject figures = new JSONObject();
            figures.put("micros", (System.nanoTime() - begin) / 1e3 / rounds / messages.length);
            figures.put("matched", matched / rounds);
            answer.put("ok", figures);
            System.out.println(answer.toJSONString());
        }
        System.exit(0);
    }
}
