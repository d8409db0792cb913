import jakarta.jms.*;
import jakarta.jms.Queue;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.jms.JmsConnectionFactory;

/** Scenarios of Qpid JMS, for `Runner`. Names of queues and topics begin with `jms.`. */
public class Scenarios {
    /** A scenario that needs nothing but a running broker. */
    @Retention(RetentionPolicy.RUNTIME)
    @interface Scenario {}

    private interface Work {
        void with(Session session) throws Exception;
    }

    private interface Attempt {
        void run() throws Exception;
    }

    private static final long PATIENCE_MS = 20_000;
    private static final int INDIVIDUAL_ACKNOWLEDGE = 101; // an extension of Qpid JMS, like the outcomes
    private static final int ACCEPTED = 1;
    private static final int REJECTED = 2;
    private static final int RELEASED = 3;
    private static final int MODIFIED_FAILED = 4;
    private static final int MODIFIED_FAILED_UNDELIVERABLE = 5;

    private static int port;
    private static Connection surviving;

    private static JmsConnectionFactory factory(String options) {
        String common = "?jms.username=guest&jms.password=guest&jms.requestTimeout=20000&jms.connectTimeout=20000";
        return new JmsConnectionFactory("amqp://127.0.0.1:" + port + common + options);
    }

    private static void session(int mode, String options, Work work) throws Exception {
        try (Connection connection = factory(options).createConnection()) {
            connection.start();
            work.with(connection.createSession(mode));
        }
    }

    private static void session(Work work) throws Exception {
        session(Session.AUTO_ACKNOWLEDGE, "", work);
    }

    private static void send(Session session, Destination destination, int count) throws JMSException {
        MessageProducer producer = session.createProducer(destination);
        for (int i = 0; i < count; i++) {
            producer.send(session.createTextMessage("" + i));
        }
        producer.close();
    }

    private static Message receive(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receive(PATIENCE_MS);
        check(message != null, "no message arrived");
        return message;
    }

    private static String text(MessageConsumer consumer) throws JMSException {
        return ((TextMessage) receive(consumer)).getText();
    }

    /** Drains the consumer's credit, which shows that the broker has no message for it. */
    private static void checkEmpty(MessageConsumer consumer) throws JMSException {
        equal(consumer.receiveNoWait(), null);
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    private static void equal(Object found, Object expected) {
        check(Objects.equals(found, expected), found + " instead of " + expected);
    }

    private static void refused(Class<? extends Exception> reason, Attempt attempt) throws Exception {
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

    @Scenario
    static void loginByEachMechanism() throws Exception {
        for (String mechanism : List.of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")) {
            String only = "&amqp.saslMechanisms=" + mechanism;
            session(Session.AUTO_ACKNOWLEDGE, only, session -> session.createTemporaryQueue());
            refused(JMSSecurityException.class, () -> factory(only).createConnection("guest", "wrong").start());
            refused(JMSSecurityException.class, () -> factory(only).createConnection("nobody", "guest").start());
        }
    }

    @Scenario
    static void websocket() throws Exception {
        String options = "?jms.username=guest&jms.password=guest&jms.requestTimeout=20000";
        String address = "amqpws://127.0.0.1:" + port + "/" + options;
        try (Connection connection = new JmsConnectionFactory(address).createConnection()) {
            connection.start();
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            Queue queue = session.createQueue("jms.websocket");
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(new byte[1_000_000]);
            session.createProducer(queue).send(message);
            Message received = session.createConsumer(queue).receive(PATIENCE_MS);
            equal(((BytesMessage) received).getBodyLength(), 1_000_000L);
        }
    }

    @Scenario
    static void propertiesArriveUnchanged() throws Exception {
        session(session -> {
            Queue queue = session.createQueue("jms.properties");
            TextMessage sent = session.createTextMessage("hello");
            sent.setStringProperty("color", "red");
            sent.setIntProperty("n", 5);
            sent.setJMSCorrelationID("c1");
            sent.setJMSType("greeting");
            sent.setJMSReplyTo(session.createQueue("jms.reply"));
            MessageProducer producer = session.createProducer(queue);
            producer.setPriority(7);
            producer.send(sent);
            TextMessage got = (TextMessage) receive(session.createConsumer(queue));
            equal(got.getText(), "hello");
            equal(got.getStringProperty("color"), "red");
            equal(got.getIntProperty("n"), 5);
            equal(got.getJMSCorrelationID(), "c1");
            equal(got.getJMSType(), "greeting");
            equal(((Queue) got.getJMSReplyTo()).getQueueName(), "jms.reply");
            equal(got.getJMSMessageID(), sent.getJMSMessageID());
            equal(got.getJMSPriority(), 7);
            equal(got.getJMSDeliveryMode(), DeliveryMode.PERSISTENT);
            equal(got.getJMSRedelivered(), false);
        });
    }

    @Scenario
    static void everyTypeOfMessageArrives() throws Exception {
        session(session -> {
            Queue queue = session.createQueue("jms.types");
            BytesMessage bytes = session.createBytesMessage();
            bytes.writeBytes(new byte[] {1, 2, 3});
            MapMessage map = session.createMapMessage();
            map.setInt("a", 1);
            map.setString("b", "x");
            StreamMessage stream = session.createStreamMessage();
            stream.writeLong(7);
            ObjectMessage object = session.createObjectMessage(new ArrayList<>(List.of("z")));
            MessageProducer producer = session.createProducer(queue);
            for (Message message : new Message[] {bytes, map, stream, object, session.createMessage()}) {
                producer.send(message);
            }
            MessageConsumer consumer = session.createConsumer(queue);
            equal(((BytesMessage) receive(consumer)).getBodyLength(), 3L);
            MapMessage gotMap = (MapMessage) receive(consumer);
            equal(gotMap.getInt("a"), 1);
            equal(gotMap.getString("b"), "x");
            equal(((StreamMessage) receive(consumer)).readLong(), 7L);
            check(receive(consumer) instanceof ObjectMessage, "the message with an object has another type");
            receive(consumer);
        });
    }

    @Scenario
    static void largeMessage() throws Exception {
        session(session -> {
            Queue queue = session.createQueue("jms.large");
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(new byte[3_000_000]);
            session.createProducer(queue).send(message);
            equal(((BytesMessage) receive(session.createConsumer(queue))).getBodyLength(), 3_000_000L);
        });
    }

    @Scenario
    static void rollbackUndoesAndCommitKeeps() throws Exception {
        session(Session.SESSION_TRANSACTED, "", session -> {
            Queue queue = session.createQueue("jms.rollback");
            MessageProducer producer = session.createProducer(queue);
            MessageConsumer consumer = session.createConsumer(queue);
            producer.send(session.createTextMessage("undone"));
            session.rollback();
            checkEmpty(consumer);
            producer.send(session.createTextMessage("kept"));
            session.commit();
            equal(text(consumer), "kept");
            session.rollback();
            TextMessage again = (TextMessage) receive(consumer);
            equal(again.getText(), "kept");
            equal(again.getJMSRedelivered(), true);
            equal(again.getIntProperty("JMSXDeliveryCount"), 2);
            session.commit();
            checkEmpty(consumer);
        });
    }

    @Scenario
    static void manyTransactionsInARow() throws Exception {
        session(Session.SESSION_TRANSACTED, "", session -> {
            Queue queue = session.createQueue("jms.transactions");
            for (int transaction = 0; transaction < 5; transaction++) {
                send(session, queue, 100);
                session.commit();
            }
            MessageConsumer consumer = session.createConsumer(queue);
            for (int i = 0; i < 500; i++) {
                equal(text(consumer), "" + i % 100);
                if (i % 50 == 49) {
                    session.commit();
                }
            }
            checkEmpty(consumer);
        });
    }

    @Scenario
    static void recoverDeliversAgain() throws Exception {
        session(Session.CLIENT_ACKNOWLEDGE, "", session -> {
            Queue queue = session.createQueue("jms.recover");
            send(session, queue, 3);
            MessageConsumer consumer = session.createConsumer(queue);
            for (int i = 0; i < 3; i++) {
                equal(text(consumer), "" + i);
            }
            session.recover();
            Message last = null;
            for (int i = 0; i < 3; i++) {
                last = receive(consumer);
                equal(((TextMessage) last).getText(), "" + i);
                equal(last.getJMSRedelivered(), true);
            }
            last.acknowledge();
            checkEmpty(consumer);
        });
    }

    @Scenario
    static void individualAndLazyAcknowledgement() throws Exception {
        session(INDIVIDUAL_ACKNOWLEDGE, "", session -> {
            Queue queue = session.createQueue("jms.individual");
            send(session, queue, 3);
            MessageConsumer consumer = session.createConsumer(queue);
            receive(consumer);
            receive(consumer).acknowledge();
        });
        session(Session.DUPS_OK_ACKNOWLEDGE, "", session -> {
            MessageConsumer consumer = session.createConsumer(session.createQueue("jms.individual"));
            equal(text(consumer), "0");
            equal(text(consumer), "2");
            checkEmpty(consumer);
        });
    }

    /** Qpid JMS lets the application choose an outcome. */
    private static void settle(Message message, int outcome) throws JMSException {
        message.setIntProperty("JMS_AMQP_ACK_TYPE", outcome);
        message.acknowledge();
    }

    @Scenario
    static void outcomesOfDeliveries() throws Exception {
        session(INDIVIDUAL_ACKNOWLEDGE, "&jms.prefetchPolicy.all=1", session -> {
            Queue queue = session.createQueue("jms.outcomes");
            MessageConsumer consumer = session.createConsumer(queue);
            send(session, queue, 1);
            int[] outcomes = {RELEASED, MODIFIED_FAILED, REJECTED};
            int[] counts = {1, 1, 2};
            for (int i = 0; i < outcomes.length; i++) {
                Message message = receive(consumer);
                equal(message.getIntProperty("JMSXDeliveryCount"), counts[i]);
                settle(message, outcomes[i]);
            }
            checkEmpty(consumer);
            send(session, queue, 1);
            settle(receive(consumer), MODIFIED_FAILED_UNDELIVERABLE);
            checkEmpty(consumer);
            consumer.close();
            consumer = session.createConsumer(queue);
            settle(receive(consumer), ACCEPTED);
            checkEmpty(consumer);
        });
    }

    @Scenario
    static void unroutableMessageIsReported() throws Exception {
        session(session -> {
            Queue nowhere = session.createQueue("/exchanges/amq.direct/nowhere");
            refused(JMSException.class, () -> send(session, nowhere, 1));
        });
    }

    @Scenario
    static void missingQueueIsRefused() throws Exception {
        session(session -> {
            Queue missing = session.createQueue("/queues/no-such-queue");
            refused(InvalidDestinationException.class, () -> session.createProducer(missing));
            refused(InvalidDestinationException.class, () -> session.createConsumer(missing));
        });
    }

    /** The caller has declared the queue, which is full. */
    static void sendToAFullQueue() throws Exception {
        session(session -> {
            Queue full = session.createQueue("/queues/jms.full");
            refused(ResourceAllocationException.class, () -> send(session, full, 1));
        });
    }

    @Scenario
    static void topicReachesEverySubscriber() throws Exception {
        session(session -> {
            Topic topic = session.createTopic("jms.topic");
            MessageConsumer one = session.createConsumer(topic);
            MessageConsumer other = session.createConsumer(topic);
            send(session, topic, 1);
            equal(text(one), "0");
            equal(text(other), "0");
        });
    }

    @Scenario
    static void durableSubscriptionKeepsMessages() throws Exception {
        String client = "&jms.clientID=durable";
        session(Session.AUTO_ACKNOWLEDGE, client, session -> {
            Topic topic = session.createTopic("jms.durable");
            session.createDurableSubscriber(topic, "subscription").close();
            send(session, topic, 1);
        });
        session(Session.AUTO_ACKNOWLEDGE, client, session -> {
            Topic topic = session.createTopic("jms.durable");
            MessageConsumer consumer = session.createDurableSubscriber(topic, "subscription");
            equal(text(consumer), "0");
            consumer.close();
            session.unsubscribe("subscription");
            refused(InvalidDestinationException.class, () -> session.unsubscribe("subscription"));
        });
    }

    @Scenario
    static void sharedSubscriptionDividesMessages() throws Exception {
        session(session -> {
            Topic topic = session.createTopic("jms.shared");
            MessageConsumer one = session.createSharedConsumer(topic, "subscription");
            MessageConsumer other = session.createSharedConsumer(topic, "subscription");
            send(session, topic, 10);
            int count = 0;
            for (MessageConsumer consumer : List.of(one, other)) {
                while (consumer.receiveNoWait() != null) {
                    count++;
                }
            }
            equal(count, 10);
        });
    }

    @Scenario
    static void sharedDurableSubscriptionKeepsMessages() throws Exception {
        session(session -> {
            Topic topic = session.createTopic("jms.shared-durable");
            session.createSharedDurableConsumer(topic, "shared-durable").close();
            send(session, topic, 1);
            MessageConsumer consumer = session.createSharedDurableConsumer(topic, "shared-durable");
            equal(text(consumer), "0");
            consumer.close();
            session.unsubscribe("shared-durable");
        });
    }

    @Scenario
    static void temporaryQueueReceivesAnswers() throws Exception {
        session(session -> {
            TemporaryQueue answers = session.createTemporaryQueue();
            MessageConsumer consumer = session.createConsumer(answers);
            Queue requests = session.createQueue("jms.requests");
            TextMessage request = session.createTextMessage("?");
            request.setJMSReplyTo(answers);
            session.createProducer(requests).send(request);
            Message got = receive(session.createConsumer(requests));
            session.createProducer(got.getJMSReplyTo()).send(session.createTextMessage("!"));
            equal(text(consumer), "!");
            consumer.close();
            answers.delete();
        });
    }

    @Scenario
    static void temporaryTopic() throws Exception {
        session(session -> {
            TemporaryTopic topic = session.createTemporaryTopic();
            MessageConsumer consumer = session.createConsumer(topic);
            send(session, topic, 1);
            equal(text(consumer), "0");
        });
    }

    @Scenario
    static void browserTakesNothing() throws Exception {
        session(session -> {
            Queue queue = session.createQueue("jms.browsed");
            send(session, queue, 5);
            int count = 0;
            Enumeration<?> messages = session.createBrowser(queue).getEnumeration();
            while (messages.hasMoreElements()) {
                equal(((TextMessage) messages.nextElement()).getText(), "" + count);
                count++;
            }
            equal(count, 5);
            MessageConsumer consumer = session.createConsumer(queue);
            for (int i = 0; i < 5; i++) {
                equal(text(consumer), "" + i);
            }
        });
    }

    @Scenario
    static void selectorTakesWhatMatches() throws Exception {
        session(session -> {
            Queue queue = session.createQueue("jms.selected");
            MessageProducer producer = session.createProducer(queue);
            for (int i = 0; i < 6; i++) {
                TextMessage message = session.createTextMessage("" + i);
                message.setIntProperty("n", i);
                message.setStringProperty("color", i % 2 == 0 ? "red" : "blue");
                producer.send(message);
            }
            MessageConsumer blue = session.createConsumer(queue, "color = 'blue' AND n > 1");
            equal(text(blue), "3");
            equal(text(blue), "5");
            checkEmpty(blue);
            blue.close();
            MessageConsumer rest = session.createConsumer(queue);
            for (String expected : List.of("0", "1", "2", "4")) {
                equal(text(rest), expected);
            }
            checkEmpty(rest);
        });
    }

    @Scenario
    static void malformedSelectorIsRefused() throws Exception {
        session(session -> {
            Queue queue = session.createQueue("jms.malformed");
            refused(InvalidSelectorException.class, () -> session.createConsumer(queue, "a ==== b"));
        });
    }

    @Scenario
    static void noLocalExcludesTheOwnMessages() throws Exception {
        session(session -> {
            Topic topic = session.createTopic("jms.no-local");
            MessageConsumer all = session.createConsumer(topic);
            MessageConsumer others = session.createConsumer(topic, null, true);
            session.createProducer(topic).send(session.createTextMessage("own"));
            session(another -> another.createProducer(topic).send(another.createTextMessage("other")));
            equal(text(all), "own");
            equal(text(all), "other");
            equal(text(others), "other");
            equal(others.receive(100), null);
        });
    }

    @Scenario
    static void noLocalHoldsForADurableSubscription() throws Exception {
        String client = "&jms.clientID=no-local";
        session(Session.AUTO_ACKNOWLEDGE, client, session -> {
            Topic topic = session.createTopic("jms.no-local-durable");
            session.createDurableSubscriber(topic, "subscription", null, true).close();
            session.createProducer(topic).send(session.createTextMessage("own"));
            session(another -> another.createProducer(topic).send(another.createTextMessage("other")));
        });
        session(Session.AUTO_ACKNOWLEDGE, client, session -> {
            Topic topic = session.createTopic("jms.no-local-durable");
            equal(text(session.createDurableSubscriber(topic, "subscription", null, true)), "other");
        });
    }

    @Scenario
    static void topicWithoutSubscribersTakesMessages() throws Exception {
        session(session -> send(session, session.createTopic("jms.lonely"), 1));
        session(Session.SESSION_TRANSACTED, "", session -> {
            send(session, session.createTopic("jms.lonely"), 1);
            session.commit();
        });
    }

    @Scenario
    static void delayedMessageComesLater() throws Exception {
        session(session -> {
            Queue queue = session.createQueue("jms.delayed");
            MessageConsumer consumer = session.createConsumer(queue);
            MessageProducer producer = session.createProducer(queue);
            producer.setDeliveryDelay(2000);
            long sent = System.nanoTime();
            producer.send(session.createTextMessage("late"));
            producer.setDeliveryDelay(0);
            producer.send(session.createTextMessage("early"));
            equal(text(consumer), "early");
            equal(text(consumer), "late");
            check(System.nanoTime() - sent >= 1_900_000_000L, "the message came too early");
        });
    }

    @Scenario
    static void expiredMessageIsNotDelivered() throws Exception {
        session(session -> {
            Queue queue = session.createQueue("jms.expiring");
            MessageProducer producer = session.createProducer(queue);
            producer.setTimeToLive(1);
            producer.send(session.createTextMessage("expired"));
            producer.setTimeToLive(60_000);
            producer.send(session.createTextMessage("alive"));
            Message got = receive(session.createConsumer(queue));
            equal(((TextMessage) got).getText(), "alive");
            check(got.getJMSExpiration() > 0, "the message has no expiration");
        });
    }

    @Scenario
    static void clientIdBelongsToOneConnection() throws Exception {
        String client = "&jms.clientID=duplicate";
        session(Session.AUTO_ACKNOWLEDGE, client, session ->
            refused(InvalidClientIDException.class, () -> factory(client).createConnection().start()));
    }

    @Scenario
    static void wrongPasswordIsRefused() throws Exception {
        refused(JMSSecurityException.class, () -> factory("").createConnection("guest", "wrong").start());
    }

    @Scenario
    static void contextSendsThroughAnAnonymousProducer() {
        try (JMSContext context = factory("").createContext()) {
            Queue queue = context.createQueue("jms.anonymous");
            context.createProducer().send(queue, "text");
            equal(context.createConsumer(queue).receiveBody(String.class, PATIENCE_MS), "text");
        }
    }

    @Scenario
    static void listenerAndAsynchronousSends() throws Exception {
        int count = 1000;
        CountDownLatch got = new CountDownLatch(count);
        CountDownLatch completed = new CountDownLatch(count);
        CompletionListener completion = new CompletionListener() {
            @Override
            public void onCompletion(Message message) {
                completed.countDown();
            }

            @Override
            public void onException(Message message, Exception error) {
                error.printStackTrace();
            }
        };
        try (Connection connection = factory("").createConnection()) {
            connection.start();
            Session receiving = connection.createSession();
            receiving.createConsumer(receiving.createQueue("jms.listened")).setMessageListener(m -> got.countDown());
            Session sending = connection.createSession();
            MessageProducer producer = sending.createProducer(sending.createQueue("jms.listened"));
            for (int i = 0; i < count; i++) {
                producer.send(sending.createTextMessage("" + i), completion);
            }
            check(got.await(PATIENCE_MS, TimeUnit.MILLISECONDS), got.getCount() + " messages are missing");
            check(completed.await(PATIENCE_MS, TimeUnit.MILLISECONDS), completed.getCount() + " sends are missing");
        }
    }

    /** Sends on a connection that stays open. The caller kills the broker, starts it, and runs goOnAfterAKill. */
    static void sendBeforeAKill() throws Exception {
        String options = "?failover.reconnectDelay=50&failover.maxReconnectDelay=200&jms.username=guest&jms.password=guest";
        surviving = new JmsConnectionFactory("failover:(amqp://127.0.0.1:" + port + ")" + options).createConnection();
        surviving.start();
        Session session = surviving.createSession();
        send(session, session.createQueue("jms.killed"), 50);
    }

    static void goOnAfterAKill() throws Exception {
        Session session = surviving.createSession();
        Queue queue = session.createQueue("jms.killed");
        send(session, queue, 50);
        MessageConsumer consumer = session.createConsumer(queue);
        for (int i = 0; i < 100; i++) {
            equal(text(consumer), "" + i % 50);
        }
        checkEmpty(consumer);
        surviving.close();
    }
}
