import com.rabbitmq.client.amqp.AmqpException;
import com.rabbitmq.client.amqp.BackOffDelayPolicy;
import com.rabbitmq.client.amqp.Connection;
import com.rabbitmq.client.amqp.Consumer;
import com.rabbitmq.client.amqp.ConsumerBuilder;
import com.rabbitmq.client.amqp.Environment;
import com.rabbitmq.client.amqp.Management;
import com.rabbitmq.client.amqp.Message;
import com.rabbitmq.client.amqp.Publisher;
import com.rabbitmq.client.amqp.Resource;
import com.rabbitmq.client.amqp.impl.AmqpEnvironmentBuilder;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Scenarios of RabbitMQ's AMQP 1.0 client, for `Runner`. */
public class RabbitScenarios {
    /** A scenario that needs nothing but a running broker. */
    @Retention(RetentionPolicy.RUNTIME)
    @interface Scenario {}

    private interface Work {
        void with(Connection connection, Management management) throws Exception;
    }

    /** A message with the means to settle it. */
    private record Received(Consumer.Context context, String text, Message message) {}

    private static final long PATIENCE_MS = 30_000;

    private static int port;
    private static final Environment environment = new AmqpEnvironmentBuilder().build();
    private static Connection surviving;
    private static Publisher publisher;
    private static BlockingQueue<Received> survivingInbox;

    private static Connection connect() {
        return environment
                .connectionBuilder()
                .host("127.0.0.1")
                .port(port)
                .username("guest")
                .password("guest")
                .recovery()
                .backOffDelayPolicy(BackOffDelayPolicy.fixed(Duration.ofMillis(200)))
                .connectionBuilder()
                .build();
    }

    private static void connected(Work work) throws Exception {
        try (Connection connection = connect()) {
            work.with(connection, connection.management());
        }
    }

    private static Publisher.Context send(Publisher publisher, Message message) throws Exception {
        BlockingQueue<Publisher.Context> outcomes = new ArrayBlockingQueue<>(1);
        publisher.publish(message, outcomes::add);
        Publisher.Context outcome = outcomes.poll(PATIENCE_MS, TimeUnit.MILLISECONDS);
        check(outcome != null, "no outcome arrived");
        return outcome;
    }

    private static Publisher.Status send(Publisher publisher, String text) throws Exception {
        return send(publisher, publisher.message(text.getBytes(StandardCharsets.UTF_8))).status();
    }

    private static void fill(Connection connection, String queue, int count) throws Exception {
        try (Publisher filling = connection.publisherBuilder().queue(queue).build()) {
            for (int i = 0; i < count; i++) {
                equal(send(filling, "" + i), Publisher.Status.ACCEPTED);
            }
        }
    }

    private static BlockingQueue<Received> consume(ConsumerBuilder builder) {
        BlockingQueue<Received> inbox = new LinkedBlockingQueue<>();
        builder.messageHandler((context, message) ->
                        inbox.add(new Received(context, new String(message.body(), StandardCharsets.UTF_8), message)))
                .build();
        return inbox;
    }

    private static Received receive(BlockingQueue<Received> inbox) throws Exception {
        Received received = inbox.poll(PATIENCE_MS, TimeUnit.MILLISECONDS);
        check(received != null, "no message arrived");
        return received;
    }

    private static void await(String what, java.util.function.BooleanSupplier holds) throws Exception {
        long end = System.nanoTime() + PATIENCE_MS * 1_000_000;
        while (!holds.getAsBoolean()) {
            check(System.nanoTime() < end, what);
            Thread.onSpinWait();
            TimeUnit.MILLISECONDS.sleep(20);
        }
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    private static void equal(Object found, Object expected) {
        check(Objects.equals(found, expected), found + " instead of " + expected);
    }

    private static void refused(Class<? extends Exception> reason, Runnable attempt) {
        try {
            attempt.run();
        } catch (RuntimeException error) {
            check(reason.isInstance(error), error + " instead of " + reason.getSimpleName());
            return;
        }
        throw new AssertionError("not refused with " + reason.getSimpleName());
    }

    @Scenario
    static void queuesAreDeclaredAndDescribed() throws Exception {
        connected((connection, management) -> {
            for (Management.QueueType type : Management.QueueType.values()) {
                String name = "rabbit.queue /%+;=ü." + type;
                Management.QueueInfo info = management.queue(name).type(type).declare();
                equal(info.name(), name);
                equal(info.type(), type);
                equal(info.durable(), true);
                equal(info.members(), List.of(connection.connectionInfo().brokerNode()));
                management.queue(name).type(type).declare();
                equal(management.queueInfo(name).arguments().get("x-queue-type"), type.name().toLowerCase());
                management.queueDelete(name);
                refused(AmqpException.AmqpEntityDoesNotExistException.class, () -> management.queueInfo(name));
            }
            String generated = management.queue().exclusive(true).autoDelete(true).declare().name();
            equal(management.queueInfo(generated).exclusive(), true);
        });
    }

    @Scenario
    static void anotherDeclarationIsRefused() throws Exception {
        connected((connection, management) -> {
            management.queue("rabbit.same").classic().queue().declare();
            refused(AmqpException.class, () -> management.queue("rabbit.same").quorum().queue().declare());
            management.exchange("rabbit.same").type(Management.ExchangeType.DIRECT).declare();
            refused(AmqpException.class, () ->
                    management.exchange("rabbit.same").type(Management.ExchangeType.FANOUT).declare());
            refused(AmqpException.AmqpEntityDoesNotExistException.class, () -> management.queuePurge("rabbit.none"));
        });
    }

    @Scenario
    static void bindingsAreMadeAndRemoved() throws Exception {
        connected((connection, management) -> {
            String queue = "rabbit.bound";
            management.queue(queue).declare();
            management.exchange("rabbit.x/1").type(Management.ExchangeType.TOPIC).declare();
            management.exchange("rabbit.headers").type(Management.ExchangeType.HEADERS).declare();
            management.binding().sourceExchange("rabbit.x/1").destinationQueue(queue).key("a b.#").bind();
            management.binding().sourceExchange("rabbit.x/1").destinationExchange("rabbit.headers").key("#").bind();
            Map<String, Object> arguments = Map.of("x-match", "all", "color", "red");
            management.binding().sourceExchange("rabbit.headers").destinationQueue(queue).arguments(arguments).bind();
            try (Publisher sender = connection.publisherBuilder().exchange("rabbit.x/1").key("a b.c").build();
                    Publisher other = connection.publisherBuilder().exchange("rabbit.x/1").key("z").build()) {
                equal(send(sender, "1"), Publisher.Status.ACCEPTED);
                equal(send(other, "2"), Publisher.Status.RELEASED);
                Message red = other.message("3".getBytes(StandardCharsets.UTF_8)).property("color", "red");
                equal(send(other, red).status(), Publisher.Status.ACCEPTED);
                equal(management.queuePurge(queue).messageCount(), 2L);
                management.unbind().sourceExchange("rabbit.x/1").destinationQueue(queue).key("a b.#").unbind();
                management.unbind().sourceExchange("rabbit.headers").destinationQueue(queue).arguments(arguments).unbind();
                equal(send(sender, "4"), Publisher.Status.RELEASED);
                equal(send(other, red).status(), Publisher.Status.RELEASED);
            }
            management.unbind().sourceExchange("rabbit.x/1").destinationExchange("rabbit.headers").key("#").unbind();
            management.exchangeDelete("rabbit.x/1");
            management.exchangeDelete("rabbit.headers");
            management.queueDelete(queue);
        });
    }

    @Scenario
    static void everyOutcomeOfAPublish() throws Exception {
        connected((connection, management) -> {
            management
                    .queue("rabbit.full")
                    .maxLength(1)
                    .overflowStrategy(Management.OverflowStrategy.REJECT_PUBLISH)
                    .declare();
            management.exchange("rabbit.unbound").type(Management.ExchangeType.DIRECT).declare();
            try (Publisher full = connection.publisherBuilder().queue("rabbit.full").build();
                    Publisher unbound = connection.publisherBuilder().exchange("rabbit.unbound").key("k").build();
                    Publisher anonymous = connection.publisherBuilder().build()) {
                equal(send(full, "a"), Publisher.Status.ACCEPTED);
                equal(send(full, "b"), Publisher.Status.REJECTED);
                equal(send(unbound, "c"), Publisher.Status.RELEASED);
                management.queuePurge("rabbit.full");
                Message addressed = anonymous.message("d".getBytes(StandardCharsets.UTF_8))
                        .toAddress().queue("rabbit.full").message();
                equal(send(anonymous, addressed).status(), Publisher.Status.ACCEPTED);
                equal(management.queueInfo("rabbit.full").messageCount(), 1L);
            }
            refused(AmqpException.AmqpEntityDoesNotExistException.class, () ->
                    connection.publisherBuilder().queue("rabbit.none").build());
        });
    }

    @Scenario
    static void propertiesArriveUnchanged() throws Exception {
        connected((connection, management) -> {
            management.queue("rabbit.properties").declare();
            UUID id = UUID.randomUUID();
            try (Publisher sender = connection.publisherBuilder().queue("rabbit.properties").build()) {
                Message sent = sender.message(new byte[300_000])
                        .messageId(id).correlationId(7L).subject("s").contentType("text/plain").groupId("g")
                        .property("text", "ü").property("number", 5).annotation("x-opt-note", "n").priority((byte) 3);
                equal(send(sender, sent).status(), Publisher.Status.ACCEPTED);
            }
            Received got = receive(consume(connection.consumerBuilder().queue("rabbit.properties")));
            got.context().accept();
            equal(got.message().body().length, 300_000);
            equal(got.message().messageIdAsUuid(), id);
            equal(got.message().correlationIdAsLong(), 7L);
            equal(got.message().subject(), "s");
            equal(got.message().groupId(), "g");
            equal(got.message().property("text"), "ü");
            equal(got.message().property("number"), 5);
            equal(got.message().annotation("x-opt-note"), "n");
        });
    }

    @Scenario
    static void messagesAreAcceptedDiscardedAndRequeued() throws Exception {
        connected((connection, management) -> {
            management.queue("rabbit.dead").declare();
            management
                    .queue("rabbit.settled")
                    .deadLetterExchange("amq.fanout")
                    .quorum()
                    .queue()
                    .declare();
            management.binding().sourceExchange("amq.fanout").destinationQueue("rabbit.dead").bind();
            // A lone message: the client may grant credit for the next one before it settles this one.
            fill(connection, "rabbit.settled", 1);
            BlockingQueue<Received> inbox = consume(connection.consumerBuilder().queue("rabbit.settled").initialCredits(1));
            receive(inbox).context().requeue();
            Received again = receive(inbox);
            equal(again.text(), "0");
            again.context().requeue(Map.of("x-opt-tries", 2), true);
            again = receive(inbox);
            equal(again.message().annotation("x-opt-tries"), 2);
            again.context().discard();
            fill(connection, "rabbit.settled", 2);
            receive(inbox).context().accept();
            receive(inbox).context().discard(Map.of("x-opt-why", "bad"));
            BlockingQueue<Received> dead = consume(connection.consumerBuilder().queue("rabbit.dead"));
            equal(receive(dead).text(), "0");
            equal(receive(dead).text(), "1");
            await("messages are left", () -> management.queueInfo("rabbit.settled").messageCount() == 0);
            management.queueDelete("rabbit.settled");
            management.queueDelete("rabbit.dead");
        });
    }

    @Scenario
    static void batchesAndPresettledMessages() throws Exception {
        connected((connection, management) -> {
            management.queue("rabbit.batch").declare();
            fill(connection, "rabbit.batch", 20);
            BlockingQueue<Received> inbox = consume(connection.consumerBuilder().queue("rabbit.batch"));
            List<Received> some = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
                some.add(receive(inbox));
            }
            Consumer.BatchContext batch = some.get(0).context().batch(20);
            some.forEach(each -> batch.add(each.context()));
            batch.accept();
            management.queue("rabbit.presettled").declare();
            fill(connection, "rabbit.presettled", 3);
            BlockingQueue<Received> settled =
                    consume(connection.consumerBuilder().queue("rabbit.presettled").preSettled());
            for (int i = 0; i < 3; i++) {
                equal(receive(settled).text(), "" + i);
            }
            equal(management.queueInfo("rabbit.presettled").messageCount(), 0L);
        });
    }

    @Scenario
    static void streamsAreReadFromOffsetsAndFiltered() throws Exception {
        connected((connection, management) -> {
            String stream = "rabbit.stream";
            management.queue(stream).stream().queue().declare();
            try (Publisher sender = connection.publisherBuilder().queue(stream).build()) {
                for (int i = 0; i < 10; i++) {
                    Message message = sender.message(("" + i).getBytes(StandardCharsets.UTF_8))
                            .subject(i % 2 == 0 ? "even" : "odd").property("number", i);
                    if (i >= 5) {
                        message.annotation("x-stream-filter-value", "late");
                    }
                    equal(send(sender, message).status(), Publisher.Status.ACCEPTED);
                }
            }
            ConsumerBuilder.StreamOffsetSpecification first = ConsumerBuilder.StreamOffsetSpecification.FIRST;
            expect(connection.consumerBuilder().queue(stream).stream().offset(first).builder(), "0123456789");
            expect(connection.consumerBuilder().queue(stream).stream().offset(7).builder(), "789");
            expect(
                    connection.consumerBuilder().queue(stream).stream().offset(first).filterValues("late").builder(),
                    "56789");
            expect(
                    connection.consumerBuilder().queue(stream).stream().offset(first).filter().subject("odd")
                            .stream().builder(),
                    "13579");
            expect(
                    connection.consumerBuilder().queue(stream).stream().offset(first).filter().property("number", 4)
                            .stream().builder(),
                    "4");
            expect(
                    connection.consumerBuilder().queue(stream).stream().offset(first).filter()
                            .sql("properties.subject = 'even' AND number > 3").stream().builder(),
                    "468");
            management.queueDelete(stream);
        });
    }

    private static void expect(ConsumerBuilder builder, String texts) throws Exception {
        BlockingQueue<Received> inbox = new LinkedBlockingQueue<>();
        try (Consumer consumer = builder.messageHandler((context, message) -> {
                    inbox.add(new Received(context, new String(message.body(), StandardCharsets.UTF_8), message));
                    context.accept();
                })
                .build()) {
            for (char text : texts.toCharArray()) {
                equal(receive(inbox).text(), "" + text);
            }
        }
    }

    @Scenario
    static void requestsAreAnswered() throws Exception {
        connected((connection, management) -> {
            management.queue("rabbit.requests").declare();
            connection.responderBuilder().requestQueue("rabbit.requests")
                    .handler((context, request) -> context.message(request.body())).build();
            for (boolean direct : new boolean[] {true, false}) {
                var builder = connection.requesterBuilder().requestAddress().queue("rabbit.requests").requester();
                if (!direct) {
                    management.queue("rabbit.replies").exclusive(true).declare();
                    builder.replyToQueue("rabbit.replies");
                }
                try (var requester = builder.build()) {
                    Message answer = requester.publish(requester.message("ping".getBytes(StandardCharsets.UTF_8)))
                            .get(PATIENCE_MS, TimeUnit.MILLISECONDS);
                    equal(new String(answer.body(), StandardCharsets.UTF_8), "ping");
                }
            }
        });
    }

    @Scenario
    static void aConsumerIsToldThatItsQueueIsGone() throws Exception {
        connected((connection, management) -> {
            management.queue("rabbit.gone").declare();
            BlockingQueue<Throwable> causes = new LinkedBlockingQueue<>();
            connection.consumerBuilder().queue("rabbit.gone").messageHandler((context, message) -> {})
                    .listeners(context -> {
                        if (context.currentState() == Resource.State.CLOSED) {
                            causes.add(context.failureCause());
                        }
                    })
                    .build();
            management.queueDelete("rabbit.gone");
            Throwable cause = causes.poll(PATIENCE_MS, TimeUnit.MILLISECONDS);
            check(cause instanceof AmqpException.AmqpEntityDoesNotExistException, "closed because of " + cause);
        });
    }

    static void theVersionIsRefused() {
        refused(AmqpException.class, () -> connect().close());
    }

    static void workBeforeAKill() throws Exception {
        surviving = connect();
        Management management = surviving.management();
        management.queue("rabbit.durable").quorum().queue().declare();
        management.queue("rabbit.passing").exclusive(true).autoDelete(true).declare();
        management.exchange("rabbit.passing").type(Management.ExchangeType.FANOUT).declare();
        management.binding().sourceExchange("rabbit.passing").destinationQueue("rabbit.passing").bind();
        publisher = surviving.publisherBuilder().queue("rabbit.durable").build();
        for (int i = 0; i < 100; i++) {
            equal(send(publisher, "" + i), Publisher.Status.ACCEPTED);
        }
        survivingInbox = consume(surviving.consumerBuilder().queue("rabbit.passing"));
        try (Publisher passing = surviving.publisherBuilder().exchange("rabbit.passing").build()) {
            equal(send(passing, "before"), Publisher.Status.ACCEPTED);
        }
        Received before = receive(survivingInbox);
        equal(before.text(), "before");
        before.context().accept();
    }

    static void goOnAfterAKill() throws Exception {
        await("the topology was not recovered", () -> {
            try {
                return surviving.management().queueInfo("rabbit.passing").consumerCount() == 1;
            } catch (AmqpException error) {
                return false;
            }
        });
        Management management = surviving.management();
        equal(management.queueInfo("rabbit.durable").messageCount(), 100L);
        try (Publisher passing = surviving.publisherBuilder().exchange("rabbit.passing").build()) {
            equal(send(passing, "after"), Publisher.Status.ACCEPTED);
        }
        equal(receive(survivingInbox).text(), "after");
        equal(send(publisher, "100"), Publisher.Status.ACCEPTED);
        BlockingQueue<Received> inbox = consume(surviving.consumerBuilder().queue("rabbit.durable"));
        for (int i = 0; i <= 100; i++) {
            Received received = receive(inbox);
            equal(received.text(), "" + i);
            received.context().accept();
        }
        surviving.close();
    }
}
