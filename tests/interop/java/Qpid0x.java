import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.util.Objects;
import javax.jms.*;
import org.apache.qpid.client.AMQConnection;
import org.apache.qpid.client.AMQConnectionFactory;
import org.apache.qpid.framing.ProtocolVersion;

/**
 * What the scenarios of Qpid JMS AMQP 0-x share. Names of queues and topics begin with `0x.`.
 *
 * This client silently falls back to AMQP 0-9-1 if the broker refuses AMQP 0-10, so every connection is checked.
 */
class Qpid0x {
    /** A scenario that needs nothing but a running broker. */
    @Retention(RetentionPolicy.RUNTIME)
    @interface Scenario {}

    /** Part of a scenario. */
    interface Work {
        void with(Session session) throws Exception;
    }

    /** A call that is expected to fail. */
    interface Attempt {
        void run() throws Exception;
    }

    static final long PATIENCE_MS = 20_000;

    static int port;

    static String url(String client, String brokerOptions, String options) {
        String broker = "tcp://127.0.0.1:" + port + (brokerOptions.isEmpty() ? "" : "?" + brokerOptions);
        return "amqp://guest:guest@" + client + "/?brokerlist='" + broker + "'" + options;
    }

    static AMQConnectionFactory factory(String client, String options) throws Exception {
        return new AMQConnectionFactory(url(client, "", options));
    }

    /** Returns the connection if it uses AMQP 0-10. */
    static <C extends Connection> C checked(C connection) {
        equal(((AMQConnection) connection).getProtocolVersion(), ProtocolVersion.v0_10);
        return connection;
    }

    static void connected(String client, String options, int mode, Work work) throws Exception {
        Connection connection = checked(factory(client, options).createConnection());
        try {
            connection.start();
            work.with(connection.createSession(mode == Session.SESSION_TRANSACTED, mode));
        } finally {
            connection.close();
        }
    }

    static void session(int mode, Work work) throws Exception {
        connected("scenarios", "", mode, work);
    }

    static void session(Work work) throws Exception {
        session(Session.AUTO_ACKNOWLEDGE, work);
    }

    /** A durable queue, which is created when it is used first. */
    static Queue queue(Session session, String name) throws JMSException {
        return session.createQueue(address(name));
    }

    static String address(String name) {
        return "ADDR:0x." + name + "; {create: always, node: {durable: true}}";
    }

    static void send(Session session, Destination destination, String... texts) throws JMSException {
        MessageProducer producer = session.createProducer(destination);
        for (String text : texts) {
            producer.send(session.createTextMessage(text));
        }
        producer.close();
    }

    static void sendNumbers(Session session, Destination destination, int count) throws JMSException {
        MessageProducer producer = session.createProducer(destination);
        for (int i = 0; i < count; i++) {
            producer.send(session.createTextMessage("" + i));
        }
        producer.close();
    }

    static Message receive(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receive(PATIENCE_MS);
        check(message != null, "no message arrived");
        return message;
    }

    static String text(MessageConsumer consumer) throws JMSException {
        return ((TextMessage) receive(consumer)).getText();
    }

    static void checkTexts(MessageConsumer consumer, String... texts) throws JMSException {
        for (String text : texts) {
            equal(text(consumer), text);
        }
    }

    /** Flushes the consumer's credit, which shows that the broker has no message for it. */
    static void checkEmpty(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receiveNoWait();
        check(message == null, "there should be no message, but there is " + message);
    }

    /** Checks the contents of a queue by a session of its own, which takes the messages. */
    static void checkQueue(String name, String... texts) throws Exception {
        session(session -> {
            MessageConsumer consumer = session.createConsumer(queue(session, name));
            checkTexts(consumer, texts);
            checkEmpty(consumer);
        });
    }

    static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    static void equal(Object found, Object expected) {
        check(Objects.equals(found, expected), found + " instead of " + expected);
    }

    static void refused(Class<? extends Exception> reason, Attempt attempt) throws Exception {
        try {
            attempt.run();
        } catch (Exception error) {
            if (!reason.isInstance(error)) {
                throw error;
            }
            return;
        }
        throw new AssertionError("not refused with " + reason.getSimpleName());
    }
}
