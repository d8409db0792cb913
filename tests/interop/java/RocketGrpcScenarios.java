import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionChecker;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * Scenarios of RocketMQ's Java client for gRPC, over TLS, with an access key, run by Runner.java. The access key and its
 * secret key are in the environment (ACCESS_KEY, SECRET_KEY). The topics java-normal, java-fifo, java-delay, java-pushed,
 * java-tx, java-survivors and tran_topic exist.
 */
public class RocketGrpcScenarios {
    /** A scenario that needs nothing but a running broker. */
    @Retention(RetentionPolicy.RUNTIME)
    @interface Scenario {}

    private static final long PATIENCE_MS = 60_000;
    private static final Duration AWAIT = Duration.ofSeconds(5);
    private static final Duration INVISIBLE = Duration.ofSeconds(15);

    private static final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private static int port;
    private static Producer survivor;
    private static final Decider survivingDecider = new Decider();

    /** Answers each check as the message's body says, and counts the checks. */
    private static class Decider implements TransactionChecker {
        final Map<String, Integer> checks = new ConcurrentHashMap<>();

        @Override
        public TransactionResolution check(MessageView message) {
            String text = text(message);
            int count = checks.merge(text, 1, Integer::sum);
            if (text.startsWith("commit") || (text.startsWith("later") && count > 1)) {
                return TransactionResolution.COMMIT;
            }
            return text.startsWith("rollback") ? TransactionResolution.ROLLBACK : TransactionResolution.UNKNOWN;
        }
    }

    private static ClientConfiguration configuration() {
        return ClientConfiguration.newBuilder()
                .setEndpoints("127.0.0.1:" + port)
                .setCredentialProvider(
                        new StaticSessionCredentialsProvider(System.getenv("ACCESS_KEY"), System.getenv("SECRET_KEY")))
                .setRequestTimeout(Duration.ofSeconds(20))
                .enableSsl(true)
                .build();
    }

    private static Producer producer(TransactionChecker checker, String... topics) throws ClientException {
        var builder = provider.newProducerBuilder().setClientConfiguration(configuration()).setTopics(topics);
        return (checker == null ? builder : builder.setTransactionChecker(checker)).build();
    }

    private static SimpleConsumer consumer(String group, String topic) throws ClientException {
        return provider.newSimpleConsumerBuilder()
                .setClientConfiguration(configuration())
                .setConsumerGroup(group)
                .setAwaitDuration(AWAIT)
                .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL))
                .build();
    }

    private static MessageBuilder message(String topic, String text) {
        return provider.newMessageBuilder()
                .setTopic(topic)
                .setTag("a")
                .setKeys("key-" + text)
                .addProperty("shop", "north")
                .setBody(text.getBytes(StandardCharsets.UTF_8));
    }

    private static String text(MessageView message) {
        ByteBuffer body = message.getBody();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static List<String> texts(Collection<MessageView> messages) {
        return messages.stream().map(RocketGrpcScenarios::text).toList();
    }

    /** Receive and acknowledge messages until there are `count`. */
    private static List<MessageView> consumed(SimpleConsumer consumer, int count) throws ClientException {
        List<MessageView> found = new ArrayList<>();
        long until = System.currentTimeMillis() + PATIENCE_MS;
        while (found.size() < count && System.currentTimeMillis() < until) {
            for (MessageView each : consumer.receive(16, INVISIBLE)) {
                found.add(each);
                consumer.ack(each);
            }
        }
        return found;
    }

    private static List<MessageView> consumed(String group, String topic, int count) throws Exception {
        try (SimpleConsumer consumer = consumer(group, topic)) {
            return consumed(consumer, count);
        }
    }

    private static void await(BooleanSupplier condition, String what) throws InterruptedException {
        long until = System.currentTimeMillis() + PATIENCE_MS;
        while (!condition.getAsBoolean()) {
            check(System.currentTimeMillis() < until, "waited in vain for " + what);
            Thread.sleep(20);
        }
    }

    private static void check(boolean condition, String text) {
        if (!condition) {
            throw new AssertionError(text);
        }
    }

    private static void equal(Object found, Object expected) {
        check(Objects.equals(found, expected), "found " + found + ", expected " + expected);
    }

    // ---- scenarios

    @Scenario
    static void messagesArriveWithEverythingThatWasSent() throws Exception {
        TreeSet<String> sent = new TreeSet<>();
        try (Producer producer = producer(null, "java-normal")) {
            for (int i = 0; i < 20; i++) {
                sent.add(producer.send(message("java-normal", "m" + i).build()).getMessageId().toString());
            }
        }
        TreeSet<String> found = new TreeSet<>();
        for (MessageView each : consumed("java-readers", "java-normal", 20)) {
            found.add(each.getMessageId().toString());
            equal(each.getTag().get(), "a");
            equal(List.copyOf(each.getKeys()), List.of("key-" + text(each)));
            equal(each.getProperties().get("shop"), "north");
            equal(each.getDeliveryAttempt(), 1);
        }
        equal(found, sent);
    }

    @Scenario
    static void aMessageIsDeliveredAgainWhenItsInvisibleTimeIsOver() throws Exception {
        try (Producer producer = producer(null, "java-normal");
                SimpleConsumer consumer = consumer("java-again", "java-normal")) {
            consumed(consumer, 20); // of the scenario before
            producer.send(message("java-normal", "again").build());
            List<MessageView> first = consumer.receive(16, INVISIBLE);
            equal(texts(first), List.of("again"));
            consumer.changeInvisibleDuration(first.get(0), Duration.ofSeconds(1));
            List<MessageView> second = consumed(consumer, 1);
            equal(texts(second), List.of("again"));
            equal(second.get(0).getDeliveryAttempt(), 2);
        }
    }

    @Scenario
    static void messagesOfOneGroupArriveInOrder() throws Exception {
        List<String> sent = new ArrayList<>();
        try (Producer producer = producer(null, "java-fifo")) {
            for (int i = 0; i < 10; i++) {
                sent.add("" + i);
                producer.send(message("java-fifo", "" + i).setMessageGroup("g").build());
            }
        }
        List<MessageView> found = consumed("java-in-order", "java-fifo", 10);
        equal(texts(found), sent);
        equal(found.get(0).getMessageGroup().get(), "g");
    }

    @Scenario
    static void aDelayedMessageArrivesAtItsTimeUnlessItIsRecalled() throws Exception {
        try (Producer producer = producer(null, "java-delay")) {
            long due = System.currentTimeMillis() + 2_000;
            SendReceipt recalled = producer.send(message("java-delay", "recalled").setDeliveryTimestamp(due).build());
            producer.send(message("java-delay", "delayed").setDeliveryTimestamp(due).build());
            equal(
                    producer.recallMessage("java-delay", recalled.getRecallHandle()).getMessageId(),
                    recalled.getMessageId());
            equal(texts(consumed("java-patient", "java-delay", 1)), List.of("delayed"));
            check(System.currentTimeMillis() >= due, "the message came early");
        }
    }

    @Scenario
    static void aTypeThatTheTopicDoesNotTakeIsRefused() throws Exception {
        try (Producer producer = producer(null, "java-delay")) {
            producer.send(message("java-delay", "normal").build());
            throw new AssertionError("a normal message was sent to a topic of type DELAY");
        } catch (ClientException | IllegalArgumentException error) {
            check(error.getMessage().contains("type"), error.getMessage());
        }
    }

    @Scenario
    static void aPushConsumerTriesAgain() throws Exception {
        try (Producer producer = producer(null, "java-pushed")) {
            for (int i = 0; i < 5; i++) {
                producer.send(message("java-pushed", "" + i).build());
            }
        }
        Map<String, Integer> seen = new ConcurrentHashMap<>();
        // It stays open: closing it takes as long as the client polls.
        provider.newPushConsumerBuilder()
                .setClientConfiguration(configuration())
                .setConsumerGroup("java-pushers")
                .setSubscriptionExpressions(Map.of("java-pushed", new FilterExpression("a || b")))
                .setMessageListener(
                        message ->
                                seen.merge(text(message), 1, Integer::sum) == 1 && text(message).equals("0")
                                        ? ConsumeResult.FAILURE
                                        : ConsumeResult.SUCCESS)
                .build();
        await(() -> seen.equals(Map.of("0", 2, "1", 1, "2", 1, "3", 1, "4", 1)), "five messages, one of them twice");
    }

    @Scenario
    static void transactionsAreDecidedByTheirProducerOrItsChecker() throws Exception {
        Decider decider = new Decider();
        try (Producer producer = producer(decider, "java-tx")) {
            for (String text : List.of("at once", "not at all", "commit", "rollback", "later", "unknown")) {
                Transaction transaction = producer.beginTransaction();
                producer.send(message("java-tx", text).build(), transaction);
                if (text.equals("at once")) {
                    transaction.commit();
                } else if (text.equals("not at all")) {
                    transaction.rollback();
                }
            }
            List<MessageView> found = consumed("java-deciders", "java-tx", 3);
            equal(new TreeSet<>(texts(found)), new TreeSet<>(List.of("at once", "commit", "later")));
            Map<String, Integer> checks = new TreeMap<>(decider.checks);
            checks.remove("unknown"); // asked again and again
            equal(checks, Map.of("commit", 1, "rollback", 1, "later", 2));
        }
    }

    @Scenario
    static void theExampleOfTheArticleRuns() throws Exception {
        Map<String, Boolean> orders = new ConcurrentHashMap<>();
        TransactionChecker checker =
                message -> {
                    Boolean known = orders.get(message.getProperties().get("orderId"));
                    if (known == null) {
                        return TransactionResolution.UNKNOWN;
                    }
                    return known ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
                };
        try (Producer producer = producer(checker, "tran_topic")) {
            Message message =
                    provider.newMessageBuilder()
                            .setTopic("tran_topic")
                            .setTag("tagA")
                            .setKeys("key-123")
                            .addProperty("orderId", "order-123")
                            .setBody("hello".getBytes(StandardCharsets.UTF_8))
                            .build();
            Transaction transaction = producer.beginTransaction();
            producer.send(message, transaction);
            orders.put("order-123", true); // the local transaction
            transaction.commit();
        }
        MessageView found = consumed("java-article", "tran_topic", 1).get(0);
        equal(text(found), "hello");
        equal(List.of(found.getTag().get(), found.getProperties().get("orderId")), List.of("tagA", "order-123"));
    }

    // ---- through a kill of the broker

    static void workBeforeAKill() throws Exception {
        survivor = producer(survivingDecider, "java-survivors");
        for (int i = 0; i < 5; i++) {
            for (String text : List.of("commit", "rollback", "commit by check")) {
                Transaction transaction = survivor.beginTransaction();
                survivor.send(message("java-survivors", text + " " + i).build(), transaction);
                if (text.equals("commit")) {
                    transaction.commit();
                } else if (text.equals("rollback")) {
                    transaction.rollback();
                }
            }
        }
    }

    static void goOnAfterAKill() throws Exception {
        long until = System.currentTimeMillis() + PATIENCE_MS;
        while (true) {
            try {
                Transaction transaction = survivor.beginTransaction();
                survivor.send(message("java-survivors", "commit after").build(), transaction);
                transaction.commit();
                break;
            } catch (Exception error) {
                check(System.currentTimeMillis() < until, "no send succeeds: " + error);
            }
        }
        TreeSet<String> expected = new TreeSet<>(List.of("commit after"));
        for (int i = 0; i < 5; i++) {
            expected.addAll(Arrays.asList("commit " + i, "commit by check " + i));
        }
        List<String> found = new CopyOnWriteArrayList<>(texts(consumed("java-survivors", "java-survivors", 11)));
        equal(new TreeSet<>(found), expected);
        equal(found.size(), 11);
        for (var each : survivingDecider.checks.entrySet()) {
            check(each.getKey().startsWith("commit by check"), "checked although decided: " + each);
        }
        survivor.close();
    }
}
