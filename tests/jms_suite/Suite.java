import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import javax.naming.Context;
import javax.naming.NameNotFoundException;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.JmsQueue;
import org.apache.qpid.jms.JmsTopic;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.Result;
import org.junit.runner.manipulation.Filter;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;
import org.objectweb.jtests.jms.admin.Admin;

/**
 * Runs the Joram JMS tests with Qpid JMS: `java -cp … Suite PORT CLASS… [--only METHOD]`. Prints `passed TEST` or
 * `failed TEST: REASON` for each test. The suite loads this class by the name in provider.properties, too, and asks it for
 * factories and destinations. Each queue and topic gets a name of its own, so nothing needs to be deleted.
 */
public class Suite implements Admin {
    private static final AtomicInteger COUNTER = new AtomicInteger();
    private static String port;

    private final Map<String, Object> objects = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        PrintStream results = System.out;
        System.setOut(System.err); // the suite prints remarks of its own
        port = arguments[0];
        List<Class<?>> classes = new ArrayList<>();
        for (int i = 1; i < arguments.length && !arguments[i].equals("--only"); i++) {
            classes.add(Class.forName(arguments[i]));
        }
        String only = arguments[arguments.length - 2].equals("--only") ? arguments[arguments.length - 1] : null;
        JUnitCore core = new JUnitCore();
        core.addListener(new Report(results));
        Result result = core.run(selected(Request.classes(classes.toArray(new Class<?>[0])), only));
        System.exit(result.wasSuccessful() ? 0 : 1);
    }

    private static Request selected(Request all, String method) {
        return method == null ? all : all.filterWith(new Filter() {
            @Override
            public boolean shouldRun(Description test) {
                return test.isSuite() || test.getMethodName().equals(method);
            }

            @Override
            public String describe() {
                return method;
            }
        });
    }

    private static class Report extends RunListener {
        private final PrintStream results;
        private boolean failed;

        Report(PrintStream results) {
            this.results = results;
        }

        private static String name(Description test) {
            return test.getTestClass().getSimpleName() + "." + test.getMethodName();
        }

        @Override
        public void testStarted(Description test) {
            failed = false;
        }

        @Override
        public void testFailure(Failure failure) {
            failed = true;
            String reason = String.valueOf(failure.getException()).replaceAll("\\s+", " ");
            results.println("failed " + name(failure.getDescription()) + ": " + reason);
            failure.getException().printStackTrace();
        }

        @Override
        public void testFinished(Description test) {
            if (!failed) {
                results.println("passed " + name(test));
            }
        }
    }

    private static String fresh(String name) {
        return "suite." + name + "." + COUNTER.incrementAndGet();
    }

    @Override
    public String getName() {
        return "EscrowMQ";
    }

    @Override
    public Context createContext() {
        return (Context) Proxy.newProxyInstance(
            Suite.class.getClassLoader(), new Class<?>[] {Context.class}, (context, method, arguments) -> {
                if (method.getName().equals("close")) {
                    return null;
                }
                if (!method.getName().equals("lookup")) {
                    throw new UnsupportedOperationException(method.getName());
                }
                Object found = objects.get(String.valueOf(arguments[0]));
                if (found == null) {
                    throw new NameNotFoundException(String.valueOf(arguments[0]));
                }
                return found;
            });
    }

    @Override
    public void createConnectionFactory(String name) {
        objects.put(name, new JmsConnectionFactory("guest", "guest", "amqp://127.0.0.1:" + port));
    }

    @Override
    public void createQueueConnectionFactory(String name) {
        createConnectionFactory(name);
    }

    @Override
    public void createTopicConnectionFactory(String name) {
        createConnectionFactory(name);
    }

    @Override
    public void createQueue(String name) {
        objects.put(name, new JmsQueue(fresh(name)));
    }

    @Override
    public void createTopic(String name) {
        objects.put(name, new JmsTopic(fresh(name)));
    }

    @Override
    public void deleteQueue(String name) {
        objects.remove(name);
    }

    @Override
    public void deleteTopic(String name) {
        objects.remove(name);
    }

    @Override
    public void deleteConnectionFactory(String name) {
        objects.remove(name);
    }

    @Override
    public void deleteQueueConnectionFactory(String name) {
        objects.remove(name);
    }

    @Override
    public void deleteTopicConnectionFactory(String name) {
        objects.remove(name);
    }

    @Override
    public void startServer() {}

    @Override
    public void stopServer() {}

    @Override
    public void start() {}

    @Override
    public void stop() {}
}
