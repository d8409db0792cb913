package example;

import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSException;
import jakarta.jms.TextMessage;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.jms.annotation.EnableJms;
import org.springframework.jms.annotation.JmsListener;
import org.springframework.jms.config.DefaultJmsListenerContainerFactory;
import org.springframework.jms.connection.CachingConnectionFactory;
import org.springframework.jms.connection.JmsTransactionManager;
import org.springframework.jms.core.JmsTemplate;
import org.springframework.stereotype.Component;
import org.springframework.transaction.annotation.EnableTransactionManagement;
import org.springframework.transaction.annotation.Transactional;

/**
 * Places orders in one transaction. A listener turns each order into an invoice, in a transaction of its own: the order is
 * acknowledged and the invoice sent, or neither. The listener fails once, and the order comes again.
 */
@Configuration
@EnableJms
@EnableTransactionManagement
public class Orders {
    private static final int COUNT = 3;

    @Bean
    ConnectionFactory connectionFactory() {
        String address = System.getProperty("broker", "amqp://127.0.0.1:5672");
        JmsConnectionFactory qpid = new JmsConnectionFactory("guest", "guest", "failover:(" + address + ")");
        return new CachingConnectionFactory(qpid);
    }

    @Bean
    JmsTransactionManager transactionManager(ConnectionFactory connectionFactory) {
        return new JmsTransactionManager(connectionFactory);
    }

    @Bean
    JmsTemplate jmsTemplate(ConnectionFactory connectionFactory) {
        JmsTemplate template = new JmsTemplate(connectionFactory);
        template.setSessionTransacted(true);
        template.setReceiveTimeout(10_000);
        return template;
    }

    @Bean
    DefaultJmsListenerContainerFactory jmsListenerContainerFactory(ConnectionFactory connectionFactory) {
        DefaultJmsListenerContainerFactory factory = new DefaultJmsListenerContainerFactory();
        factory.setConnectionFactory(connectionFactory);
        factory.setSessionTransacted(true); // with a transaction manager, each message would have a consumer of its own
        factory.setErrorHandler(error -> System.out.println("rolled back: " + error.getCause().getMessage()));
        return factory;
    }

    @Component
    public static class Shop {
        private final JmsTemplate jms;

        Shop(JmsTemplate jms) {
            this.jms = jms;
        }

        /** Places all orders, or none. */
        @Transactional
        public void placeOrders() {
            for (int number = 1; number <= COUNT; number++) {
                jms.convertAndSend("spring.orders", "order " + number);
            }
        }
    }

    @Component
    public static class Billing {
        private final JmsTemplate jms;

        Billing(JmsTemplate jms) {
            this.jms = jms;
        }

        @JmsListener(destination = "spring.orders")
        public void bill(TextMessage order) throws JMSException {
            jms.convertAndSend("spring.invoices", "invoice for " + order.getText());
            if (order.getText().equals("order 2") && !order.getJMSRedelivered()) {
                throw new IllegalStateException("no paper for the invoice of " + order.getText());
            }
        }
    }

    @Component
    public static class Customer {
        final CountDownLatch paid = new CountDownLatch(COUNT);

        @JmsListener(destination = "spring.invoices")
        public void pay(String invoice) {
            System.out.println(invoice + " is paid");
            paid.countDown();
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        try (AnnotationConfigApplicationContext spring =
                new AnnotationConfigApplicationContext(Orders.class, Shop.class, Billing.class, Customer.class)) {
            spring.getBean(Shop.class).placeOrders();
            if (!spring.getBean(Customer.class).paid.await(30, TimeUnit.SECONDS)) {
                throw new IllegalStateException("invoices are missing");
            }
        }
    }
}
