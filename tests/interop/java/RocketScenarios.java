import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Objects;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Scenarios of RocketMQ's classic client, for `Runner`. The port is that of the name server. */
public class RocketScenarios {
    /** A scenario that needs nothing but a running broker. */
    @Retention(RetentionPolicy.RUNTIME)
    @interface Scenario {}

    private interface Work<T> {
        void with(T client) throws Exception;
    }

    private static final long PATIENCE_MS = 60_000;

    private static int port;
    private static RPCHook hook; // signs the requests of mqadmin
    private static DefaultMQProducer onlineProducer;
    private static DefaultMQPushConsumer onlineConsumer;
    private static TransactionMQProducer survivingProducer;
    private static Decider survivingDecider;
    private static DefaultMQPushConsumer survivingConsumer;
    private static final List<String> survivingInbox = new ArrayList<>();

    /** Decides transactions as their bodies say: commit, rollback, or unknown and then commit or rollback at a check. */
    private static class Decider implements TransactionListener {
        final ConcurrentHashMap<String, Integer> checks = new ConcurrentHashMap<>();

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            String text = text(message);
            if (text.startsWith("commit")) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
            return text.startsWith("rollback") ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String text = text(message);
            int count = checks.merge(text, 1, Integer::sum);
            if (!Objects.equals(message.getUserProperty("TRANSACTION_CHECK_TIMES"), "" + count)
                    && !Objects.equals(message.getProperty("TRANSACTION_CHECK_TIMES"), "" + count)) {
                checks.put(text, 1000);
            }
            if (text.startsWith("late")) {
                return LocalTransactionState.UNKNOW;
            }
            return text.contains("commit")
                    ? LocalTransactionState.COMMIT_MESSAGE
                    : LocalTransactionState.ROLLBACK_MESSAGE;
        }
    }

    private static String fresh(String name) {
        return name + "-" + UUID.randomUUID();
    }

    private static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static Message message(String topic, String tag, String text) {
        return new Message(topic, tag, text.getBytes(StandardCharsets.UTF_8));
    }

    private static <P extends DefaultMQProducer> P started(P producer) throws Exception {
        producer.setNamesrvAddr("127.0.0.1:" + port);
        producer.setInstanceName(fresh("i"));
        producer.setSendMsgTimeout(20_000);
        producer.start();
        return producer;
    }

    private static void producing(Work<DefaultMQProducer> work) throws Exception {
        DefaultMQProducer producer = started(new DefaultMQProducer(fresh("pg")));
        try {
            work.with(producer);
        } finally {
            producer.shutdown();
        }
    }

    private static DefaultMQPushConsumer consumer(String topic, String filter) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(fresh("g"));
        consumer.setNamesrvAddr("127.0.0.1:" + port);
        consumer.setInstanceName(fresh("i"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, filter);
        return consumer;
    }

    private static void collect(DefaultMQPushConsumer consumer, Collection<String> inbox) throws Exception {
        consumer.registerMessageListener(
                (MessageListenerConcurrently)
                        (messages, context) -> {
                            synchronized (inbox) {
                                messages.forEach(each -> inbox.add(text(each)));
                                inbox.notifyAll();
                            }
                            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                        });
        consumer.start();
    }

    private static void await(Collection<String> inbox, Collection<String> expected) throws Exception {
        long until = System.currentTimeMillis() + PATIENCE_MS;
        synchronized (inbox) {
            while (inbox.size() < expected.size() && System.currentTimeMillis() < until) {
                inbox.wait(100);
            }
            equal(new TreeSet<>(inbox), new TreeSet<>(expected));
            equal(inbox.size(), expected.size());
        }
    }

    private static void equal(Object found, Object expected) {
        check(Objects.equals(found, expected), "expected " + expected + ", not " + found);
    }

    private static void check(boolean holds, String why) {
        if (!holds) {
            throw new AssertionError(why);
        }
    }

    // ---- scenarios

    @Scenario
    static void messagesReachAPushConsumer() throws Exception {
        String topic = fresh("t");
        producing(
                producer -> {
                    List<String> sent = new ArrayList<>();
                    for (int i = 0; i < 20; i++) {
                        sent.add("m" + i);
                        equal(producer.send(message(topic, "a", "m" + i)).getSendStatus(), SendStatus.SEND_OK);
                    }
                    List<String> inbox = new ArrayList<>();
                    DefaultMQPushConsumer consumer = consumer(topic, "*");
                    collect(consumer, inbox);
                    await(inbox, sent);
                    producer.send(message(topic, "a", "later"));
                    sent.add("later");
                    await(inbox, sent);
                    consumer.shutdown();
                });
    }

    @Scenario
    static void aLargeBodyArrivesCompressed() throws Exception {
        String topic = fresh("t");
        String text = "x".repeat(200_000);
        producing(producer -> producer.send(message(topic, "a", text)));
        List<String> inbox = new ArrayList<>();
        DefaultMQPushConsumer consumer = consumer(topic, "*");
        collect(consumer, inbox);
        await(inbox, List.of(text));
        consumer.shutdown();
    }

    @Scenario
    static void aBatchArrives() throws Exception {
        String topic = fresh("t");
        producing(
                producer -> {
                    producer.send(message(topic, "a", "first"));
                    producer.send(List.of(message(topic, "a", "b0"), message(topic, "b", "b1"), message(topic, "a", "b2")));
                });
        List<String> inbox = new ArrayList<>();
        DefaultMQPushConsumer consumer = consumer(topic, "*");
        collect(consumer, inbox);
        await(inbox, List.of("first", "b0", "b1", "b2"));
        consumer.shutdown();
    }

    @Scenario
    static void aFilterNamesTags() throws Exception {
        String topic = fresh("t");
        producing(
                producer -> {
                    for (String tag : List.of("a", "b", "c")) {
                        producer.send(message(topic, tag, tag));
                    }
                });
        List<String> inbox = new ArrayList<>();
        DefaultMQPushConsumer consumer = consumer(topic, "a || c");
        collect(consumer, inbox);
        await(inbox, List.of("a", "c"));
        consumer.shutdown();
    }

    @Scenario
    static void aFilterIsAnExpression() throws Exception {
        String topic = fresh("t");
        producing(
                producer -> {
                    for (int i = 0; i < 6; i++) {
                        Message message = message(topic, "a", "" + i);
                        message.putUserProperty("n", "" + i);
                        producer.send(message);
                    }
                });
        List<String> inbox = new ArrayList<>();
        DefaultMQPushConsumer consumer = consumer(topic, "*");
        consumer.subscribe(topic, MessageSelector.bySql("n BETWEEN 2 AND 4 AND TAGS = 'a'"));
        collect(consumer, inbox);
        await(inbox, List.of("2", "3", "4"));
        consumer.shutdown();
    }

    @Scenario
    static void aDelayedMessageArrivesLater() throws Exception {
        String topic = fresh("t");
        List<String> inbox = new ArrayList<>();
        producing(
                producer -> {
                    producer.send(message(topic, "a", "now"));
                    Message delayed = message(topic, "a", "delayed");
                    delayed.setDelayTimeLevel(2);
                    long sent = System.currentTimeMillis();
                    producer.send(delayed);
                    Message timed = message(topic, "a", "timed");
                    timed.setDelayTimeMs(2000);
                    producer.send(timed);
                    DefaultMQPushConsumer consumer = consumer(topic, "*");
                    collect(consumer, inbox);
                    await(inbox, List.of("now", "timed", "delayed"));
                    equal(inbox, List.of("now", "timed", "delayed"));
                    check(System.currentTimeMillis() - sent >= 5000, "the message came early");
                    consumer.shutdown();
                });
    }

    @Scenario
    static void orderIsKeptWithinAQueue() throws Exception {
        String topic = fresh("t");
        producing(
                producer -> {
                    for (int i = 0; i < 30; i++) {
                        producer.send(message(topic, "a", "" + i), (queues, message, key) -> queues.get((Integer) key), i % 3);
                    }
                });
        List<String> inbox = new ArrayList<>();
        DefaultMQPushConsumer consumer = consumer(topic, "*");
        consumer.registerMessageListener(
                (MessageListenerOrderly)
                        (messages, context) -> {
                            synchronized (inbox) {
                                messages.forEach(each -> inbox.add(text(each)));
                                inbox.notifyAll();
                            }
                            return ConsumeOrderlyStatus.SUCCESS;
                        });
        consumer.start();
        List<String> all = new ArrayList<>();
        for (int i = 0; i < 30; i++) {
            all.add("" + i);
        }
        await(inbox, all);
        for (int queue = 0; queue < 3; queue++) {
            int number = queue;
            List<Integer> order = inbox.stream().map(Integer::valueOf).filter(each -> each % 3 == number).toList();
            equal(order, order.stream().sorted().toList());
        }
        consumer.shutdown();
    }

    @Scenario
    static void aFailedMessageIsDeliveredAgain() throws Exception {
        String topic = fresh("t");
        producing(producer -> producer.send(message(topic, "a", "again")));
        List<String> inbox = new ArrayList<>();
        DefaultMQPushConsumer consumer = consumer(topic, "*");
        consumer.registerMessageListener(
                (MessageListenerConcurrently)
                        (messages, context) -> {
                            synchronized (inbox) {
                                MessageExt message = messages.get(0);
                                inbox.add(message.getTopic() + " " + message.getReconsumeTimes());
                                inbox.notifyAll();
                                context.setDelayLevelWhenNextConsume(1);
                                return message.getReconsumeTimes() == 0
                                        ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                                        : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                            }
                        });
        consumer.start();
        await(inbox, List.of(topic + " 0", topic + " 1"));
        consumer.shutdown();
    }

    @Scenario
    static void aMessageThatAlwaysFailsIsADeadLetter() throws Exception {
        String topic = fresh("t");
        producing(producer -> producer.send(message(topic, "a", "dead")));
        DefaultMQPushConsumer consumer = consumer(topic, "*");
        consumer.setMaxReconsumeTimes(1);
        consumer.registerMessageListener(
                (MessageListenerConcurrently)
                        (messages, context) -> {
                            context.setDelayLevelWhenNextConsume(1);
                            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                        });
        consumer.start();
        List<String> inbox = new ArrayList<>();
        DefaultMQPushConsumer undertaker = consumer("%DLQ%" + consumer.getConsumerGroup(), "*");
        collect(undertaker, inbox);
        await(inbox, List.of("dead"));
        consumer.shutdown();
        undertaker.shutdown();
    }

    @Scenario
    static void aLitePullConsumerPolls() throws Exception {
        String topic = fresh("t");
        producing(
                producer -> {
                    List<String> sent = new ArrayList<>();
                    for (int i = 0; i < 10; i++) {
                        sent.add("m" + i);
                        producer.send(message(topic, "a", "m" + i));
                    }
                    String group = fresh("g");
                    equal(new TreeSet<>(polled(group, topic, 10)), new TreeSet<>(sent));
                    producer.send(message(topic, "a", "more"));
                    equal(polled(group, topic, 1), List.of("more"));
                });
    }

    private static List<String> polled(String group, String topic, int count) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr("127.0.0.1:" + port);
        consumer.setInstanceName(fresh("i"));
        consumer.setAutoCommit(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.start();
        List<String> inbox = new ArrayList<>();
        long until = System.currentTimeMillis() + PATIENCE_MS;
        while (inbox.size() < count && System.currentTimeMillis() < until) {
            consumer.poll(500).forEach(each -> inbox.add(text(each)));
        }
        consumer.commitSync();
        consumer.shutdown();
        return inbox;
    }

    @Scenario
    static void membersOfAGroupShareTheQueues() throws Exception {
        String topic = fresh("t");
        producing(
                producer -> {
                    producer.send(message(topic, "a", "first"));
                    List<String> inbox = new ArrayList<>();
                    DefaultMQPushConsumer one = consumer(topic, "*");
                    DefaultMQPushConsumer other = consumer(topic, "*");
                    other.setConsumerGroup(one.getConsumerGroup());
                    collect(one, inbox);
                    await(inbox, List.of("first"));
                    collect(other, inbox);
                    List<String> all = new ArrayList<>(List.of("first"));
                    for (int i = 0; i < 40; i++) {
                        all.add("m" + i);
                        producer.send(message(topic, "a", "m" + i));
                    }
                    await(inbox, all);
                    one.shutdown();
                    other.shutdown();
                });
    }

    @Scenario
    static void transactionsAreDecidedByTheirProducer() throws Exception {
        String topic = fresh("t");
        Decider decider = new Decider();
        TransactionMQProducer producer = new TransactionMQProducer(fresh("pg"));
        producer.setTransactionListener(decider);
        started(producer);
        List<String> inbox = new ArrayList<>();
        for (String text : List.of("commit", "rollback", "unknown then commit", "unknown then rollback", "commit 2")) {
            equal(producer.sendMessageInTransaction(message(topic, "a", text), null).getSendStatus(), SendStatus.SEND_OK);
        }
        DefaultMQPushConsumer consumer = consumer(topic, "*");
        consumer.registerMessageListener(
                (MessageListenerConcurrently)
                        (messages, context) -> {
                            synchronized (inbox) {
                                for (MessageExt message : messages) {
                                    equal(message.getTransactionId(), message.getMsgId());
                                    inbox.add(text(message));
                                }
                                inbox.notifyAll();
                            }
                            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                        });
        consumer.start();
        await(inbox, List.of("commit", "commit 2", "unknown then commit"));
        equal(decider.checks.get("unknown then commit"), 1);
        consumer.shutdown();
        producer.shutdown();
    }

    @Scenario
    static void aHalfMessageIsDeliveredWithoutItsDelay() throws Exception {
        String topic = fresh("t");
        TransactionMQProducer producer = new TransactionMQProducer(fresh("pg"));
        producer.setTransactionListener(new Decider());
        started(producer);
        Message delayed = message(topic, "a", "commit");
        delayed.setDelayTimeSec(3600);
        producer.sendMessageInTransaction(delayed, null);
        List<String> inbox = new ArrayList<>();
        DefaultMQPushConsumer consumer = consumer(topic, "*");
        collect(consumer, inbox);
        await(inbox, List.of("commit"));
        consumer.shutdown();
        producer.shutdown();
    }

    @Scenario
    static void aTopicForTransactionsRefusesOtherMessages() throws Exception {
        String topic = fresh("t");
        TransactionMQProducer producer = new TransactionMQProducer(fresh("pg"));
        producer.setTransactionListener(new Decider());
        started(producer);
        producer.sendMessageInTransaction(message(topic, "a", "commit"), null);
        try {
            producer.send(message(topic, "a", "normal"));
            check(false, "a normal message was accepted");
        } catch (MQBrokerException error) {
            equal(error.getResponseCode(), 13);
            check(error.getErrorMessage().contains("expected type is TRANSACTION"), error.getErrorMessage());
        } finally {
            producer.shutdown();
        }
    }

    @Scenario
    static void aDelayedMessageIsRecalled() throws Exception {
        String topic = fresh("t");
        producing(
                producer -> {
                    Message recalled = message(topic, "a", "recalled");
                    recalled.setDelayTimeMs(2000);
                    String handle = producer.send(recalled).getRecallHandle();
                    Message kept = message(topic, "a", "kept");
                    kept.setDelayTimeMs(2000);
                    producer.send(kept);
                    check(!producer.recallMessage(topic, handle).isEmpty(), "no id was returned");
                    List<String> inbox = new ArrayList<>();
                    DefaultMQPushConsumer consumer = consumer(topic, "*");
                    collect(consumer, inbox);
                    await(inbox, List.of("kept"));
                    consumer.shutdown();
                });
    }

    @Scenario
    static void messagesAreFoundByTheirIdsAndKeys() throws Exception {
        String topic = fresh("t");
        producing(
                producer -> {
                    Message keyed = message(topic, "a", "body");
                    keyed.setKeys("k1 k2");
                    SendResult sent = producer.send(keyed);
                    equal(text(producer.viewMessage(topic, sent.getOffsetMsgId())), "body");
                    equal(text(producer.viewMessage(topic, sent.getMsgId())), "body");
                    var found = producer.queryMessage(topic, "k2", 32, 0, Long.MAX_VALUE).getMessageList();
                    equal(found.stream().map(RocketScenarios::text).toList(), List.of("body"));
                });
    }

    @Scenario
    static void everyMemberOfABroadcastGroupGetsEachMessage() throws Exception {
        String topic = fresh("t");
        producing(
                producer -> {
                    producer.send(message(topic, "a", "first"));
                    List<DefaultMQPushConsumer> consumers = new ArrayList<>();
                    List<List<String>> inboxes = List.of(new ArrayList<>(), new ArrayList<>());
                    for (List<String> inbox : inboxes) {
                        DefaultMQPushConsumer consumer = consumer(topic, "*");
                        if (!consumers.isEmpty()) {
                            consumer.setConsumerGroup(consumers.get(0).getConsumerGroup());
                        }
                        consumer.setMessageModel(MessageModel.BROADCASTING);
                        collect(consumer, inbox);
                        consumers.add(consumer);
                        await(inbox, List.of("first"));
                    }
                    producer.send(message(topic, "a", "second"));
                    for (List<String> inbox : inboxes) {
                        await(inbox, List.of("first", "second"));
                    }
                    consumers.forEach(DefaultMQPushConsumer::shutdown);
                });
    }

    @Scenario
    static void othersTakeTheQueuesOfALostConsumer() throws Exception {
        String topic = fresh("t");
        producing(
                producer -> {
                    producer.send(message(topic, "a", "first"));
                    List<String> inbox = new ArrayList<>();
                    DefaultMQPushConsumer lost = consumer(topic, "*");
                    DefaultMQPushConsumer other = consumer(topic, "*");
                    other.setConsumerGroup(lost.getConsumerGroup());
                    List<String> lostInbox = new ArrayList<>();
                    collect(lost, lostInbox);
                    await(lostInbox, List.of("first"));
                    // Without its connections the client neither leaves its group nor reports its offsets.
                    lost.getDefaultMQPushConsumerImpl().getmQClientFactory().getMQClientAPIImpl().shutdown();
                    collect(other, inbox);
                    TreeSet<String> all = new TreeSet<>();
                    for (int i = 0; i < 16; i++) {
                        all.add("m" + i);
                        producer.send(message(topic, "a", "m" + i));
                    }
                    long until = System.currentTimeMillis() + PATIENCE_MS;
                    synchronized (inbox) {
                        while (!new TreeSet<>(inbox).containsAll(all) && System.currentTimeMillis() < until) {
                            inbox.wait(100);
                        }
                        check(new TreeSet<>(inbox).containsAll(all), "only " + inbox);
                    }
                    other.shutdown();
                });
    }

    @Scenario
    static void tracesOfMessagesArrive() throws Exception {
        String topic = fresh("t");
        List<String> traces = new ArrayList<>();
        DefaultMQProducer producer = new DefaultMQProducer(fresh("pg"));
        producer.setEnableTrace(true);
        started(producer);
        SendResult sent = producer.send(message(topic, "a", "traced"));
        DefaultMQPushConsumer tracer = consumer("RMQ_SYS_TRACE_TOPIC", "*");
        collect(tracer, traces);
        long until = System.currentTimeMillis() + PATIENCE_MS;
        synchronized (traces) {
            while (traces.stream().noneMatch(each -> each.contains(sent.getMsgId()))) {
                check(System.currentTimeMillis() < until, "no trace of the message arrived");
                traces.wait(100);
            }
        }
        tracer.shutdown();
        producer.shutdown();
    }

    @Scenario
    static void clientsWithTlsSendAndReceive() throws Exception {
        String topic = fresh("t");
        DefaultMQProducer producer = new DefaultMQProducer(fresh("pg"));
        producer.setUseTLS(true);
        started(producer);
        producer.send(message(topic, "a", "secret"));
        DefaultMQPushConsumer consumer = consumer(topic, "*");
        consumer.setUseTLS(true);
        List<String> inbox = new ArrayList<>();
        collect(consumer, inbox);
        await(inbox, List.of("secret"));
        consumer.shutdown();
        producer.shutdown();
    }

    // ---- access keys

    static void clientsWithAnAccessKeySendAndReceive(String[] keys) throws Exception {
        String topic = fresh("t");
        DefaultMQProducer producer = started(new DefaultMQProducer(fresh("pg"), signedWith(keys)));
        producer.send(message(topic, "a", "signed"));
        DefaultMQPushConsumer consumer =
                new DefaultMQPushConsumer(fresh("g"), signedWith(keys), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr("127.0.0.1:" + port);
        consumer.setInstanceName(fresh("i"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        List<String> inbox = new ArrayList<>();
        collect(consumer, inbox);
        await(inbox, List.of("signed"));
        consumer.shutdown();
        producer.shutdown();
    }

    private static RPCHook signedWith(String[] keys) {
        return new AclClientRPCHook(new SessionCredentials(keys[0], keys[1]));
    }

    // ---- mqadmin

    /** Has the following commands signed with an access key, or not signed without arguments. */
    static void signCommands(String[] keys) {
        hook = keys.length == 0 ? null : signedWith(keys);
    }

    /** Keeps a consumer and a producer connected, in the groups and with the topic in the arguments. */
    static void comeOnline(String[] names) throws Exception {
        onlineProducer = started(new DefaultMQProducer(names[0]));
        onlineProducer.send(message(names[2], "a", "online"));
        onlineConsumer = consumer(names[2], "*");
        onlineConsumer.setConsumerGroup(names[1]);
        List<String> inbox = new ArrayList<>();
        collect(onlineConsumer, inbox);
        await(inbox, List.of("online"));
    }

    static void goOffline() {
        onlineConsumer.shutdown();
        onlineProducer.shutdown();
    }

    /** Runs one command of mqadmin with the name server's address, and returns everything that it prints. */
    static String mqadmin(String[] words) throws Exception {
        List<String> command = new ArrayList<>(List.of(words));
        command.addAll(List.of("-n", "127.0.0.1:" + port));
        PrintStream output = System.out;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
        PrintStream errors = System.err;
        System.setOut(capture);
        System.setErr(capture);
        try {
            MQAdminStartup.main0(command.toArray(new String[0]), hook);
        } finally {
            System.setOut(output);
            System.setErr(errors);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }

    // ---- through a kill of the broker

    static void workBeforeAKill() throws Exception {
        survivingDecider = new Decider();
        survivingProducer = new TransactionMQProducer("survivors");
        survivingProducer.setTransactionListener(survivingDecider);
        started(survivingProducer);
        for (String text : List.of("commit 1", "rollback 1", "unknown then commit 1", "unknown then rollback 1")) {
            survivingProducer.sendMessageInTransaction(message("surviving", "a", text), null);
        }
        survivingProducer.send(message("plain", "a", "before the kill"));
    }

    static void goOnAfterAKill() throws Exception {
        long until = System.currentTimeMillis() + PATIENCE_MS;
        while (true) {
            try {
                survivingProducer.sendMessageInTransaction(message("surviving", "a", "commit 2"), null);
                break;
            } catch (Exception error) {
                check(System.currentTimeMillis() < until, "no send succeeds: " + error);
            }
        }
        survivingConsumer = consumer("surviving", "*");
        collect(survivingConsumer, survivingInbox);
        await(survivingInbox, List.of("commit 1", "unknown then commit 1", "commit 2"));
        List<String> inbox = new ArrayList<>();
        DefaultMQPushConsumer plain = consumer("plain", "*");
        collect(plain, inbox);
        await(inbox, List.of("before the kill"));
        plain.shutdown();
        survivingConsumer.shutdown();
        survivingProducer.shutdown();
    }
}
