import java.util.Enumeration;
import javax.jms.*;

/** Scenarios of Qpid JMS AMQP 0-x about queues, topics, subscriptions, selectors, browsers and both syntaxes of addresses. */
public class Qpid0xDestinations extends Qpid0x {
    private static Topic topic(Session session, String name) throws JMSException {
        return session.createTopic("ADDR:amq.topic/0x." + name);
    }

    @Scenario
    static void topicReachesEverySubscriber() throws Exception {
        session(session -> {
            Topic topic = topic(session, "topic");
            MessageConsumer one = session.createConsumer(topic);
            MessageConsumer other = session.createConsumer(topic);
            send(session, topic, "a");
            checkTexts(one, "a");
            checkTexts(other, "a");
        });
    }

    @Scenario
    static void topicPatterns() throws Exception {
        session(session -> {
            MessageConsumer word = session.createConsumer(session.createTopic("ADDR:amq.topic/0x.news.*"));
            MessageConsumer all = session.createConsumer(session.createTopic("BURL:topic://amq.topic//?routingkey='0x.news.#'"));
            send(session, session.createTopic("ADDR:amq.topic/0x.news.de"), "short");
            send(session, session.createTopic("ADDR:amq.topic/0x.news.de.local"), "long");
            checkTexts(word, "short");
            checkEmpty(word);
            checkTexts(all, "short", "long");
        });
    }

    @Scenario
    static void topicWithoutSubscribersTakesMessages() throws Exception {
        session(session -> send(session, topic(session, "lonely"), "a"));
        session(Session.SESSION_TRANSACTED, session -> {
            send(session, topic(session, "lonely"), "a");
            session.commit();
        });
    }

    @Scenario
    static void durableSubscriptionKeepsMessages() throws Exception {
        connected("durable", "", Session.AUTO_ACKNOWLEDGE, session -> {
            Topic topic = topic(session, "durable");
            session.createDurableSubscriber(topic, "subscription").close();
            send(session, topic, "kept");
        });
        connected("durable", "", Session.AUTO_ACKNOWLEDGE, session -> {
            Topic topic = topic(session, "durable");
            MessageConsumer consumer = session.createDurableSubscriber(topic, "subscription");
            checkTexts(consumer, "kept");
            consumer.close();
            session.unsubscribe("subscription");
            refused(InvalidDestinationException.class, () -> session.unsubscribe("subscription"));
        });
        connected("durable", "", Session.AUTO_ACKNOWLEDGE, session -> {
            Topic topic = topic(session, "durable");
            send(session, topic, "too early");
            MessageConsumer consumer = session.createDurableSubscriber(topic, "subscription");
            checkEmpty(consumer);
            consumer.close();
            session.unsubscribe("subscription");
        });
    }

    @Scenario
    static void durableSubscriptionHasASelector() throws Exception {
        connected("selecting", "", Session.AUTO_ACKNOWLEDGE, session -> {
            Topic topic = topic(session, "selecting");
            session.createDurableSubscriber(topic, "subscription", "color = 'red'", false).close();
            MessageProducer producer = session.createProducer(topic);
            for (String color : new String[] {"blue", "red"}) {
                Message message = session.createTextMessage(color);
                message.setStringProperty("color", color);
                producer.send(message);
            }
            MessageConsumer consumer = session.createDurableSubscriber(topic, "subscription", "color = 'red'", false);
            checkTexts(consumer, "red");
            checkEmpty(consumer);
            consumer.close();
            session.unsubscribe("subscription");
        });
    }

    @Scenario
    static void noLocalExcludesTheOwnMessages() throws Exception {
        session(session -> {
            Topic topic = topic(session, "no-local");
            MessageConsumer others = session.createConsumer(topic, null, true);
            send(session, topic, "own");
            session(another -> send(another, topic, "other"));
            checkTexts(others, "other");
            checkEmpty(others);
        });
    }

    @Scenario
    static void temporaryQueueReceivesAnswers() throws Exception {
        session(session -> {
            TemporaryQueue answers = session.createTemporaryQueue();
            MessageConsumer consumer = session.createConsumer(answers);
            Queue requests = queue(session, "requests");
            TextMessage request = session.createTextMessage("?");
            request.setJMSReplyTo(answers);
            session.createProducer(requests).send(request);
            session(server -> {
                Message got = receive(server.createConsumer(requests));
                send(server, got.getJMSReplyTo(), "!");
            });
            checkTexts(consumer, "!");
            consumer.close();
            answers.delete();
        });
    }

    @Scenario
    static void temporaryTopic() throws Exception {
        session(session -> {
            TemporaryTopic topic = session.createTemporaryTopic();
            MessageConsumer consumer = session.createConsumer(topic);
            send(session, topic, "a");
            checkTexts(consumer, "a");
        });
    }

    @Scenario
    static void browserTakesNothing() throws Exception {
        session(session -> {
            Queue queue = queue(session, "browsed");
            sendNumbers(session, queue, 5);
            int count = 0;
            QueueBrowser browser = session.createBrowser(queue);
            Enumeration<?> messages = browser.getEnumeration();
            while (messages.hasMoreElements()) {
                equal(((TextMessage) messages.nextElement()).getText(), "" + count);
                count++;
            }
            equal(count, 5);
            browser.close();
            checkTexts(session.createConsumer(queue), "0", "1", "2", "3", "4");
        });
    }

    @Scenario
    static void selectorTakesWhatMatches() throws Exception {
        session(session -> {
            Queue queue = queue(session, "selected");
            MessageProducer producer = session.createProducer(queue);
            for (int i = 0; i < 6; i++) {
                TextMessage message = session.createTextMessage("" + i);
                message.setIntProperty("n", i);
                message.setStringProperty("color", i % 2 == 0 ? "red" : "blue");
                message.setJMSCorrelationID("c" + i);
                producer.send(message, DeliveryMode.PERSISTENT, i, 0);
            }
            MessageConsumer blue = session.createConsumer(queue, "color = 'blue' AND n > 1");
            checkTexts(blue, "3", "5");
            checkEmpty(blue);
            blue.close();
            MessageConsumer headers = session.createConsumer(queue, "JMSCorrelationID = 'c4' OR JMSPriority = 1");
            checkTexts(headers, "1", "4");
            checkEmpty(headers);
            headers.close();
            MessageConsumer rest = session.createConsumer(queue);
            checkTexts(rest, "0", "2");
            checkEmpty(rest);
        });
    }

    @Scenario
    static void malformedSelectorIsRefused() throws Exception {
        session(session -> {
            Queue queue = queue(session, "malformed");
            refused(InvalidSelectorException.class, () -> session.createConsumer(queue, "a ==== b"));
        });
    }

    @Scenario
    static void missingQueueIsRefused() throws Exception {
        session(session -> {
            Queue missing = session.createQueue("ADDR:0x.missing");
            refused(JMSException.class, () -> session.createProducer(missing));
            refused(JMSException.class, () -> session.createConsumer(missing));
        });
    }

    @Scenario
    static void addressCreatesBindsAndDeletes() throws Exception {
        String node = "{type: queue, x-bindings: [{exchange: 'amq.direct', key: '0x.key'}, {exchange: 'amq.fanout'}]}";
        session(session -> {
            Queue bound = session.createQueue("ADDR:0x.bound; {create: always, delete: receiver, node: " + node + "}");
            MessageConsumer consumer = session.createConsumer(bound);
            send(session, session.createQueue("ADDR:amq.direct/0x.key"), "by key");
            checkTexts(consumer, "by key");
            consumer.close();
            refused(JMSException.class, () -> session.createProducer(session.createQueue("ADDR:0x.bound")));
        });
    }

    @Scenario
    static void addressCreatesAnExchange() throws Exception {
        String node = "{type: topic, x-declare: {type: headers}}";
        session(session -> {
            Topic headers = session.createTopic("ADDR:0x.headers; {create: always, delete: always, node: " + node + "}");
            String binding = "{exchange: '0x.headers', key: any, arguments: {x-match: all, color: red}}";
            Queue queue = session.createQueue("ADDR:0x.red; {create: always, delete: always, node: {x-bindings: []}}");
            MessageProducer producer = session.createProducer(headers);
            MessageConsumer consumer = session.createConsumer(
                session.createQueue("ADDR:0x.red; {create: always, delete: always, node: {x-bindings: [" + binding + "]}}"));
            for (String color : new String[] {"blue", "red"}) {
                Message message = session.createTextMessage(color);
                message.setStringProperty("color", color);
                producer.send(message);
            }
            checkTexts(consumer, "red");
            checkEmpty(consumer);
            consumer.close();
            producer.close();
            refused(JMSException.class, () -> session.createConsumer(session.createQueue("ADDR:0x.red")));
            check(queue != null, "the address was refused");
        });
    }

    @Scenario
    static void bindingUrlOfAQueue() throws Exception {
        session(session -> {
            Queue queue = session.createQueue("BURL:direct://amq.direct//0x.burl?durable='true'&routingkey='0x.route'");
            MessageConsumer consumer = session.createConsumer(queue);
            send(session, queue, "by route");
            send(session, session.createQueue("ADDR:amq.direct/0x.route"), "by the other syntax");
            checkTexts(consumer, "by route", "by the other syntax");
        });
    }

    /** The caller has declared the queue, which is full. */
    static void sendToAFullQueue() throws Exception {
        connected("full", "&sync_publish='all'", Session.AUTO_ACKNOWLEDGE, session -> {
            MessageProducer producer = session.createProducer(session.createQueue("ADDR:0x.full"));
            refused(JMSException.class, () -> producer.send(session.createTextMessage("too much")));
        });
    }
}
