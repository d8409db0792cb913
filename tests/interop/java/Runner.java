import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Scanner;
import java.util.stream.Stream;
import javax.tools.ToolProvider;

/**
 * Runs the scenarios of a client. `java -cp 'LIB/*' Runner.java FOLDER/SCENARIOS.java…` compiles SCENARIOS, reads lines
 * `NAME PORT ARGUMENT…`, whose parts are separated by tabs, and prints `NAME ok` or `NAME failed: REASON` for each.
 *
 * A scenario is a static method of SCENARIOS without parameters, or with one of type String[] for the arguments. The
 * text that it returns, if any, follows `ok` in base 64. The port is stored in the static field `port` of SCENARIOS or
 * of a superclass before each run. Classes of the same folder that SCENARIOS uses are compiled with it.
 */
public class Runner {
    private final List<Class<?>> scenarios;
    private final PrintStream output = System.out;

    private Runner(List<Class<?>> scenarios) {
        this.scenarios = scenarios;
    }

    public static void main(String[] arguments) throws Exception {
        Runner runner = new Runner(compiled(arguments));
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            String[] parts = lines.nextLine().split("\t");
            runner.run(parts[0], Integer.parseInt(parts[1]), Arrays.copyOfRange(parts, 2, parts.length));
        }
        System.exit(0);
    }

    private static List<Class<?>> compiled(String[] sources) throws Exception {
        Path folder = Files.createTempDirectory("scenarios");
        Path from = Path.of(sources[0]).getParent();
        List<String> options = new ArrayList<>(List.of("-proc:none", "-nowarn", "-implicit:class", "-d", folder.toString()));
        options.addAll(List.of("-cp", System.getProperty("java.class.path"), "-sourcepath", from.toString()));
        options.addAll(List.of(sources));
        if (ToolProvider.getSystemJavaCompiler().run(null, null, null, options.toArray(new String[0])) != 0) {
            throw new IllegalArgumentException(String.join(", ", sources) + " cannot be compiled");
        }
        try (Stream<Path> files = Files.walk(folder)) {
            files.forEach(file -> file.toFile().deleteOnExit());
        }
        URLClassLoader loader = new URLClassLoader(new URL[] {folder.toUri().toURL()}, Runner.class.getClassLoader());
        List<Class<?>> found = new ArrayList<>();
        for (String source : sources) {
            found.add(loader.loadClass(Path.of(source).getFileName().toString().replace(".java", "")));
        }
        return found;
    }

    private void run(String name, int port, String[] arguments) {
        String result = "ok";
        try {
            Method scenario = found(name);
            setPort(scenario.getDeclaringClass(), port);
            scenario.setAccessible(true);
            Object text = scenario.getParameterCount() == 0 ? scenario.invoke(null) : scenario.invoke(null, (Object) arguments);
            if (text != null) {
                result += " " + Base64.getEncoder().encodeToString(text.toString().getBytes(StandardCharsets.UTF_8));
            }
        } catch (InvocationTargetException wrapper) {
            wrapper.getCause().printStackTrace();
            result = "failed: " + String.valueOf(wrapper.getCause()).replaceAll("\\s+", " ");
        } catch (ReflectiveOperationException error) {
            result = "failed: there is no such scenario";
        }
        output.println(name + " " + result);
    }

    private static void setPort(Class<?> scenarios, int port) throws ReflectiveOperationException {
        Class<?> owner = scenarios;
        while (owner.getSuperclass() != Object.class) {
            owner = owner.getSuperclass();
        }
        var field = owner.getDeclaredField("port");
        field.setAccessible(true);
        field.setInt(null, port);
    }

    private Method found(String name) throws NoSuchMethodException {
        for (Class<?> each : scenarios) {
            for (Method method : each.getDeclaredMethods()) {
                if (method.getName().equals(name)) {
                    return method;
                }
            }
        }
        throw new NoSuchMethodException(name);
    }
}
