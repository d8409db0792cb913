import java.util.Arrays;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A load of RocketMQ's unmodified classic client: a transactional producer, each of whose threads sends and commits one
 * message after the other, and a push consumer of the same topic. `RocketLoad NAME-SERVER TOPIC THREADS SIZE SECONDS`
 * prints the number of messages that were committed, delivered and delivered again, and the seconds that this took.
 */
public class RocketLoad {
    private static final long PATIENCE_SECONDS = 60;

    private static final Set<String> sent = ConcurrentHashMap.newKeySet();
    private static final Set<String> delivered = ConcurrentHashMap.newKeySet();
    private static final AtomicLong again = new AtomicLong();
    private static final AtomicLong lastAt = new AtomicLong();

    /** Commits every message. */
    private static class Commits implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    }

    private static DefaultMQPushConsumer consumer(String nameServer, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("GID-" + UUID.randomUUID());
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                if (message.getKeys() != null && !delivered.add(message.getKeys())) {
                    again.incrementAndGet();
                }
            }
            lastAt.set(System.nanoTime());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static void send(TransactionMQProducer producer, String topic, byte[] body, String prefix, long end) {
        for (long number = 0; System.nanoTime() < end; number++) {
            String key = prefix + "-" + number;
            try {
                Message message = new Message(topic, "perf", key, body);
                if (producer.sendMessageInTransaction(message, null).getSendStatus() == SendStatus.SEND_OK) {
                    sent.add(key);
                }
            } catch (Exception error) {
                System.err.println(error);
                return;
            }
        }
    }

    /** Send for some time from some threads, and return when everything has been delivered. */
    private static void run(TransactionMQProducer producer, String topic, int threads, int size, double seconds)
            throws Exception {
        byte[] body = new byte[size];
        Arrays.fill(body, (byte) 'x');
        CountDownLatch done = new CountDownLatch(threads);
        long end = System.nanoTime() + (long) (seconds * 1e9);
        for (int thread = 0; thread < threads; thread++) {
            String prefix = UUID.randomUUID().toString();
            new Thread(() -> {
                send(producer, topic, body, prefix, end);
                done.countDown();
            }).start();
        }
        done.await();
        long giveUp = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        while (!delivered.containsAll(sent) && System.nanoTime() < giveUp) {
            TimeUnit.MILLISECONDS.sleep(10);
        }
    }

    public static void main(String[] arguments) throws Exception {
        String nameServer = arguments[0], topic = arguments[1];
        int threads = Integer.parseInt(arguments[2]), size = Integer.parseInt(arguments[3]);
        double seconds = Double.parseDouble(arguments[4]);
        TransactionMQProducer producer = new TransactionMQProducer("PID-" + UUID.randomUUID());
        producer.setNamesrvAddr(nameServer);
        producer.setTransactionListener(new Commits());
        producer.start();
        DefaultMQPushConsumer consumer = consumer(nameServer, topic);
        run(producer, topic, threads, size, seconds / 2); // to warm up, also until the consumer has its queues
        sent.clear();
        delivered.clear();
        again.set(0);
        long begun = System.nanoTime();
        run(producer, topic, threads, size, seconds);
        System.out.printf(
                "{\"committed\": %d, \"delivered\": %d, \"again\": %d, \"seconds\": %s}%n",
                sent.size(), delivered.size(), again.get(), (lastAt.get() - begun) / 1e9);
        consumer.shutdown();
        producer.shutdown();
    }
}
