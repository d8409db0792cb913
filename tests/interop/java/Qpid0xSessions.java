import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import javax.jms.*;
import org.apache.qpid.client.AMQConnectionFactory;

/** Scenarios of Qpid JMS AMQP 0-x about connections, messages, acknowledgements and transacted sessions. */
public class Qpid0xSessions extends Qpid0x {
    private static final int NO_ACKNOWLEDGE = 257; // an extension of this client

    private static Connection surviving;

    @Scenario
    static void loginByEachMechanism() throws Exception {
        for (String mechanism : List.of("PLAIN", "SCRAM-SHA-256")) {
            String only = "sasl_mechs='" + mechanism + "'";
            checked(new AMQConnectionFactory(url("login", only, "")).createConnection()).close();
            refused(JMSException.class, () ->
                new AMQConnectionFactory(url("login", only, "")).createConnection("guest", "wrong").close());
        }
    }

    @Scenario
    static void propertiesArriveUnchanged() throws Exception {
        session(session -> {
            TextMessage sent = session.createTextMessage("hällo");
            sent.setStringProperty("color", "red");
            sent.setIntProperty("int", 5);
            sent.setLongProperty("long", -5_000_000_000L);
            sent.setBooleanProperty("boolean", true);
            sent.setByteProperty("byte", (byte) -3);
            sent.setShortProperty("short", (short) -300);
            sent.setFloatProperty("float", 1.5f);
            sent.setDoubleProperty("double", -2.25);
            sent.setJMSCorrelationID("c1");
            sent.setJMSType("greeting");
            sent.setJMSReplyTo(queue(session, "reply"));
            Queue queue = queue(session, "properties");
            MessageProducer producer = session.createProducer(queue);
            producer.setPriority(7);
            producer.setTimeToLive(60_000);
            producer.send(sent);
            TextMessage got = (TextMessage) receive(session.createConsumer(queue));
            equal(got.getText(), "hällo");
            equal(got.getStringProperty("color"), "red");
            equal(got.getIntProperty("int"), 5);
            equal(got.getLongProperty("long"), -5_000_000_000L);
            equal(got.getBooleanProperty("boolean"), true);
            equal(got.getByteProperty("byte"), (byte) -3);
            equal(got.getShortProperty("short"), (short) -300);
            equal(got.getFloatProperty("float"), 1.5f);
            equal(got.getDoubleProperty("double"), -2.25);
            equal(got.getJMSCorrelationID(), "c1");
            equal(got.getJMSType(), "greeting");
            check(got.getJMSReplyTo().toString().contains("0x.reply"), "reply to " + got.getJMSReplyTo());
            equal(got.getJMSMessageID(), sent.getJMSMessageID());
            equal(got.getJMSTimestamp(), sent.getJMSTimestamp());
            equal(got.getJMSPriority(), 7);
            equal(got.getJMSDeliveryMode(), DeliveryMode.PERSISTENT);
            check(got.getJMSExpiration() > sent.getJMSTimestamp(), "expires at " + got.getJMSExpiration());
            equal(got.getJMSRedelivered(), false);
        });
    }

    @Scenario
    static void everyTypeOfMessageArrives() throws Exception {
        session(session -> {
            Queue queue = queue(session, "types");
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
            equal(((ObjectMessage) receive(consumer)).getObject(), List.of("z"));
            receive(consumer);
            checkEmpty(consumer);
        });
    }

    @Scenario
    static void largeMessage() throws Exception {
        byte[] body = new byte[3_000_000];
        Arrays.fill(body, (byte) 7);
        session(session -> {
            Queue queue = queue(session, "large");
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(body);
            session.createProducer(queue).send(message);
            BytesMessage got = (BytesMessage) receive(session.createConsumer(queue));
            byte[] found = new byte[(int) got.getBodyLength()];
            got.readBytes(found);
            check(Arrays.equals(found, body), "the body differs");
        });
    }

    @Scenario
    static void rollbackUndoesAndCommitKeeps() throws Exception {
        session(Session.SESSION_TRANSACTED, session -> {
            Queue queue = queue(session, "rollback");
            MessageProducer producer = session.createProducer(queue);
            MessageConsumer consumer = session.createConsumer(queue);
            producer.send(session.createTextMessage("undone"));
            session.rollback();
            checkEmpty(consumer);
            producer.send(session.createTextMessage("kept"));
            checkEmpty(consumer);
            session.commit();
            equal(text(consumer), "kept");
            session.rollback();
            Message again = receive(consumer);
            equal(((TextMessage) again).getText(), "kept");
            equal(again.getJMSRedelivered(), true);
            session.commit();
            checkEmpty(consumer);
        });
    }

    @Scenario
    static void manyTransactionsInARow() throws Exception {
        session(Session.SESSION_TRANSACTED, session -> {
            Queue queue = queue(session, "transactions");
            for (int transaction = 0; transaction < 5; transaction++) {
                sendNumbers(session, queue, 100);
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
    static void transactionOfAClosedConnectionIsUndone() throws Exception {
        session(session -> send(session, queue(session, "abandoned"), "first"));
        session(Session.SESSION_TRANSACTED, session -> {
            Queue queue = queue(session, "abandoned");
            send(session, queue, "second");
            equal(text(session.createConsumer(queue)), "first");
        });
        checkQueue("abandoned", "first");
    }

    @Scenario
    static void recoverDeliversAgain() throws Exception {
        session(Session.CLIENT_ACKNOWLEDGE, session -> {
            Queue queue = queue(session, "recover");
            sendNumbers(session, queue, 3);
            MessageConsumer consumer = session.createConsumer(queue);
            checkTexts(consumer, "0", "1", "2");
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
        checkQueue("recover");
    }

    @Scenario
    static void unacknowledgedMessagesReturn() throws Exception {
        session(Session.CLIENT_ACKNOWLEDGE, session -> {
            Queue queue = queue(session, "unacknowledged");
            sendNumbers(session, queue, 3);
            MessageConsumer consumer = session.createConsumer(queue);
            receive(consumer).acknowledge();
            checkTexts(consumer, "1", "2");
        });
        checkQueue("unacknowledged", "1", "2");
    }

    @Scenario
    static void lazyAcknowledgements() throws Exception {
        for (int mode : new int[] {Session.DUPS_OK_ACKNOWLEDGE, NO_ACKNOWLEDGE}) {
            session(mode, session -> {
                Queue queue = queue(session, "lazy");
                sendNumbers(session, queue, 100);
                MessageConsumer consumer = session.createConsumer(queue);
                for (int i = 0; i < 100; i++) {
                    equal(text(consumer), "" + i);
                }
            });
            checkQueue("lazy");
        }
    }

    @Scenario
    static void smallPrefetchSharesAQueue() throws Exception {
        connected("prefetch", "&maxprefetch='1'", Session.CLIENT_ACKNOWLEDGE, session -> {
            Queue queue = queue(session, "shared");
            MessageConsumer one = session.createConsumer(queue);
            sendNumbers(session, queue, 3);
            equal(text(one), "0");
            connected("other", "&maxprefetch='1'", Session.AUTO_ACKNOWLEDGE, another ->
                check(text(another.createConsumer(queue)) != null, "nothing for the other consumer"));
        });
    }

    @Scenario
    static void stoppedConnectionReceivesNothing() throws Exception {
        Connection connection = checked(factory("stopped", "").createConnection());
        try {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Queue queue = queue(session, "stopped");
            MessageConsumer consumer = session.createConsumer(queue);
            sendNumbers(session, queue, 2);
            equal(consumer.receive(100), null);
            connection.start();
            equal(text(consumer), "0");
            connection.stop();
            connection.start();
            equal(text(consumer), "1");
        } finally {
            connection.close();
        }
    }

    @Scenario
    static void listenerAndSynchronousSends() throws Exception {
        int count = 500;
        CountDownLatch got = new CountDownLatch(count);
        List<String> texts = Collections.synchronizedList(new ArrayList<>());
        connected("listener", "&sync_publish='all'", Session.AUTO_ACKNOWLEDGE, receiving -> {
            Queue queue = queue(receiving, "listened");
            receiving.createConsumer(queue).setMessageListener(message -> {
                texts.add(message.toString());
                got.countDown();
            });
            connected("sender", "&sync_publish='all'", Session.AUTO_ACKNOWLEDGE, sending -> sendNumbers(sending, queue, count));
            check(got.await(PATIENCE_MS, TimeUnit.MILLISECONDS), got.getCount() + " messages are missing");
            equal(texts.size(), count);
        });
    }

    @Scenario
    static void expiredMessageIsNotDelivered() throws Exception {
        session(session -> {
            Queue queue = queue(session, "expiring");
            MessageProducer producer = session.createProducer(queue);
            producer.setTimeToLive(1);
            TextMessage expired = session.createTextMessage("expired");
            producer.send(expired);
            while (System.currentTimeMillis() <= expired.getJMSExpiration() + 5) {
                Thread.onSpinWait();
            }
            producer.setTimeToLive(60_000);
            producer.send(session.createTextMessage("alive"));
            checkTexts(session.createConsumer(queue), "alive");
        });
    }

    /** Sends on a connection that fails over. The caller kills the broker, starts it, and runs goOnAfterAKill. */
    static void sendBeforeAKill() throws Exception {
        String retrying = "retries='1000'&connectdelay='200'"; // a busy machine may need a minute for the start
        String url = url("surviving", retrying, "&failover='singlebroker'&sync_publish='persistent'");
        surviving = checked(new AMQConnectionFactory(url).createConnection());
        surviving.start();
        Session session = surviving.createSession(true, Session.SESSION_TRANSACTED);
        sendNumbers(session, queue(session, "killed"), 50);
        session.commit();
    }

    static void goOnAfterAKill() throws Exception {
        Session session = surviving.createSession(true, Session.SESSION_TRANSACTED);
        Queue queue = queue(session, "killed");
        sendNumbers(session, queue, 50);
        session.commit();
        MessageConsumer consumer = session.createConsumer(queue);
        for (int i = 0; i < 100; i++) {
            equal(text(consumer), "" + i % 50);
        }
        session.commit();
        checkEmpty(consumer);
        surviving.close();
    }
}
