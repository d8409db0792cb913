import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeoutException;
import org.apache.qpid.amqp_1_0.client.AcknowledgeMode;
import org.apache.qpid.amqp_1_0.client.Connection;
import org.apache.qpid.amqp_1_0.client.Message;
import org.apache.qpid.amqp_1_0.client.Receiver;
import org.apache.qpid.amqp_1_0.client.Sender;
import org.apache.qpid.amqp_1_0.client.Session;
import org.apache.qpid.amqp_1_0.transport.Container;
import org.apache.qpid.amqp_1_0.type.Binary;
import org.apache.qpid.amqp_1_0.type.DeliveryState;
import org.apache.qpid.amqp_1_0.type.Outcome;
import org.apache.qpid.amqp_1_0.type.Section;
import org.apache.qpid.amqp_1_0.type.UnsignedInteger;
import org.apache.qpid.amqp_1_0.type.messaging.Accepted;
import org.apache.qpid.amqp_1_0.type.messaging.AmqpValue;
import org.apache.qpid.amqp_1_0.type.messaging.Header;

/**
 * Moves numbers through a queue, each exactly once, by the AMQP 1.0 client of Qpid's Java broker, which resumes links if
 * the application supplies the unsettled deliveries: `java -cp … Resuming send|receive PORT COUNT JOURNAL`.
 *
 * <p>The journal is a file with a line `begin TAG NUMBER` for each delivery that this program has begun to send, or has
 * processed, and a line `settled TAG` when the delivery is forgotten. The broker and this program may be killed at any
 * moment. A line `resumed HOW TAG` tells what became of a delivery after an interruption. The program ends when all
 * numbers have passed and every delivery is settled.
 */
public class Resuming {
    private static final String QUEUE = "outsider";
    private static final int WINDOW = 50;
    private static final long PAUSE_MS = 100;

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[1]);
        int count = Integer.parseInt(arguments[2]);
        try (Journal journal = new Journal(Path.of(arguments[3]))) {
            End end = arguments[0].equals("send") ? new Sending(journal, count) : new Receiving(journal, count);
            while (!end.finished()) {
                try {
                    run(end, port, arguments[0]);
                } catch (Exception error) { // the broker is down
                    System.err.println(error);
                    Thread.sleep(PAUSE_MS);
                }
            }
        }
        System.exit(0);
    }

    private static void run(End end, int port, String name) throws Exception {
        Container container = new Container("outsider-" + name);
        Connection connection = new Connection("127.0.0.1", port, "guest", "guest", container);
        try {
            Session session = connection.createSession();
            end.attach(session);
            while (!end.finished() && !connection.getEndpoint().closedForInput()) {
                end.work();
            }
        } finally {
            if (!connection.getEndpoint().closedForInput()) {
                connection.close();
            }
        }
    }

    /** The sender or the receiver. */
    private interface End {
        void attach(Session session) throws Exception;

        void work() throws Exception;

        boolean finished();
    }

    /** The deliveries that are not settled, as they were when the program was killed. */
    private static class Journal implements AutoCloseable {
        private final Map<Binary, Integer> unsettled = new LinkedHashMap<>();
        private final OutputStream file;
        private int begun;

        Journal(Path path) throws IOException {
            if (Files.exists(path)) {
                for (String line : Files.readAllLines(path)) {
                    String[] words = line.split(" ");
                    if (words[0].equals("begin")) {
                        unsettled.put(new Binary(bytes(words[1])), Integer.valueOf(words[2]));
                        begun++;
                    } else if (words[0].equals("settled")) {
                        unsettled.remove(new Binary(bytes(words[1])));
                    }
                }
            }
            file = new FileOutputStream(path.toFile(), true);
        }

        synchronized int begun() {
            return begun;
        }

        synchronized Map<Binary, Integer> unsettled() {
            return new LinkedHashMap<>(unsettled);
        }

        synchronized boolean holds(Binary tag) {
            return unsettled.containsKey(tag);
        }

        synchronized int size() {
            return unsettled.size();
        }

        synchronized void begin(Binary tag, int number) {
            write("begin " + text(tag) + " " + number);
            unsettled.put(tag, number);
            begun++;
        }

        synchronized void settle(Binary tag) {
            if (unsettled.remove(tag) != null) {
                write("settled " + text(tag));
            }
        }

        synchronized void resumed(String how, Binary tag) {
            write("resumed " + how + " " + text(tag));
        }

        private void write(String line) {
            try {
                file.write((line + "\n").getBytes(StandardCharsets.US_ASCII)); // one write, so it is there as a whole
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }

        private static String text(Binary tag) {
            StringBuilder hex = new StringBuilder();
            for (byte one : tag.getArray()) {
                hex.append(String.format("%02x", one));
            }
            return hex.toString();
        }

        private static byte[] bytes(String hex) {
            byte[] found = new byte[hex.length() / 2];
            for (int i = 0; i < found.length; i++) {
                found[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
            }
            return found;
        }

        @Override
        public void close() throws IOException {
            file.close();
        }
    }

    private static class Sending implements End {
        private final Journal journal;
        private final int count;
        private Sender sender;

        Sending(Journal journal, int count) {
            this.journal = journal;
            this.count = count;
        }

        @Override
        public boolean finished() {
            return journal.begun() == count && journal.size() == 0;
        }

        @Override
        public void attach(Session session) throws Exception {
            Map<Binary, Integer> mine = journal.unsettled();
            Map<Binary, Outcome> unsettled = new HashMap<>();
            mine.keySet().forEach(tag -> unsettled.put(tag, null));
            sender = session.createSender(QUEUE, 0, AcknowledgeMode.EO, "to-" + QUEUE, true, unsettled);
            Map<Binary, DeliveryState> known = sender.getRemoteUnsettled();
            Map<Binary, DeliveryState> theirs = known == null ? Map.of() : known;
            for (Map.Entry<Binary, Integer> one : mine.entrySet()) {
                DeliveryState state = theirs.get(one.getKey());
                if (state instanceof Outcome) {
                    adopt(one.getKey(), state);
                } else {
                    boolean resume = theirs.containsKey(one.getKey());
                    journal.resumed(resume ? "whole" : "again", one.getKey());
                    transfer(one.getKey(), one.getValue(), resume);
                }
            }
        }

        /** The broker has the message and its outcome, so the delivery is settled by a transfer without the message. */
        private void adopt(Binary tag, DeliveryState state) throws Exception {
            Message settlement = new Message(new ArrayList<Section>());
            settlement.setDeliveryTag(tag);
            settlement.setResume(true);
            settlement.setDeliveryState(state);
            settlement.setSettled(true);
            awaitCredit();
            sender.send(settlement);
            journal.resumed(state.getClass().getSimpleName(), tag);
            journal.settle(tag);
        }

        @Override
        public void work() throws Exception {
            int number = journal.begun();
            if (number < count && journal.size() < WINDOW) {
                Binary tag = new Binary(("n" + number).getBytes(StandardCharsets.US_ASCII));
                journal.begin(tag, number);
                transfer(tag, number, false);
            } else {
                await(() -> journal.size() < (journal.begun() < count ? WINDOW : 1));
            }
        }

        private void transfer(Binary tag, int number, boolean resume) throws Exception {
            Header header = new Header();
            header.setDurable(true);
            Message message = new Message(List.<Section>of(header, new AmqpValue(number)));
            message.setDeliveryTag(tag);
            message.setResume(resume);
            awaitCredit();
            sender.send(message, (settled, outcome) -> {
                if (!(outcome instanceof Accepted)) {
                    throw new IllegalStateException(number + " has the outcome " + outcome);
                }
                journal.settle(settled);
            });
        }

        private void awaitCredit() throws Exception {
            while (!sender.getEndpoint().hasCreditToSend()) {
                await(sender.getEndpoint()::hasCreditToSend);
            }
        }

        /** Wait for a moment, or until the condition holds. */
        private void await(java.util.function.BooleanSupplier condition) throws Exception {
            if (sender.getEndpoint().getSession().getConnection().closedForInput()) {
                throw new IOException("the connection is lost");
            }
            try {
                sender.getEndpoint().waitUntil(condition::getAsBoolean, PAUSE_MS);
            } catch (TimeoutException none) {
                return; // the caller looks for itself
            }
        }
    }

    private static class Receiving implements End {
        private final Journal journal;
        private final int count;
        private Session session;
        private Receiver receiver;

        Receiving(Journal journal, int count) {
            this.journal = journal;
            this.count = count;
        }

        @Override
        public boolean finished() {
            return journal.begun() == count && journal.size() == 0;
        }

        @Override
        public void attach(Session session) throws Exception {
            this.session = session;
            Map<Binary, Outcome> unsettled = new HashMap<>();
            journal.unsettled().keySet().forEach(tag -> unsettled.put(tag, new Accepted()));
            receiver = session.createReceiver(QUEUE, AcknowledgeMode.EO, "from-" + QUEUE, true, unsettled);
            Map<Binary, Outcome> known = receiver.getRemoteUnsettled();
            for (Binary tag : unsettled.keySet()) {
                if (known == null || !known.containsKey(tag)) { // the broker has settled it
                    journal.resumed("absent", tag);
                    journal.settle(tag);
                }
            }
            receiver.setCredit(UnsignedInteger.valueOf(WINDOW), true);
        }

        @Override
        public void work() {
            Message message = receiver.receive(PAUSE_MS);
            if (message == null) {
                return;
            }
            Binary tag = message.getDeliveryTag();
            if (message.getPayload().isEmpty()) { // a settled resumption
                journal.resumed("Accepted", tag);
                journal.settle(tag);
            } else if (journal.holds(tag)) {
                journal.resumed("whole", tag);
            } else {
                journal.begin(tag, number(message));
            }
            synchronized (session.getEndpoint().getLock()) { // the client's map of actions has no lock of its own
                receiver.acknowledge(tag, journal::settle);
            }
        }

        private static int number(Message message) {
            for (Section section : message.getPayload()) {
                if (section instanceof AmqpValue) {
                    return ((Number) ((AmqpValue) section).getValue()).intValue();
                }
            }
            throw new IllegalStateException("a message without a number");
        }
    }
}
