import com.arjuna.ats.arjuna.common.ObjectStoreEnvironmentBean;
import com.arjuna.ats.arjuna.common.arjPropertyManager;
import com.arjuna.ats.arjuna.common.recoveryPropertyManager;
import com.arjuna.ats.arjuna.recovery.RecoveryManager;
import com.arjuna.ats.internal.jta.recovery.arjunacore.JTAActionStatusServiceXAResourceOrphanFilter;
import com.arjuna.ats.internal.jta.recovery.arjunacore.JTANodeNameXAResourceOrphanFilter;
import com.arjuna.ats.internal.jta.recovery.arjunacore.JTATransactionLogXAResourceOrphanFilter;
import com.arjuna.ats.internal.jta.recovery.arjunacore.XARecoveryModule;
import com.arjuna.ats.internal.jta.resources.arjunacore.XAResourceRecord;
import com.arjuna.ats.internal.jta.resources.arjunacore.XAResourceRecordWrappingPlugin;
import com.arjuna.ats.jta.common.jtaPropertyManager;
import com.arjuna.ats.jta.recovery.XAResourceRecoveryHelper;
import com.arjuna.common.internal.util.propertyservice.BeanPopulator;
import jakarta.transaction.RollbackException;
import jakarta.transaction.Transaction;
import jakarta.transaction.TransactionManager;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.logging.Level;
import java.util.logging.Logger;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TextMessage;
import javax.jms.XASession;
import javax.sql.XAConnection;
import javax.transaction.xa.XAException;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import org.apache.qpid.client.AMQConnection;
import org.apache.qpid.client.AMQConnectionFactory;
import org.apache.qpid.framing.ProtocolVersion;
import org.jboss.tm.XAResourceWrapper;
import org.postgresql.xa.PGXADataSource;

/**
 * Take an order from a queue, charge an account in PostgreSQL, send a shipment: all three happen, or none.
 *
 * Narayana is the transaction manager, the broker is reached by Qpid JMS over AMQP 0-10, PostgreSQL by its own driver. This
 * program, the broker and PostgreSQL may be killed at any moment. After a restart, recovery completes what was decided and
 * rolls back everything else. The guide docs/guides/xa-from-java.md explains the settings.
 *
 *     make jms
 *     java -cp '.venv/xa-java/*' examples/xa-java/OrderTransfer.java \
 *         127.0.0.1:5672 'jdbc:postgresql://localhost/shop?user=shop&password=...' transaction-log 10
 *
 * The arguments are the addresses of the broker and of the database, and the folder of Narayana's log. The last argument
 * first declares the queues, creates the tables, and publishes ten orders; leave it out to go on with the orders that are
 * there. The program ends when no order is waiting. PostgreSQL needs max_prepared_transactions above 0.
 */
public class OrderTransfer {
    /** The name of this transaction manager: at most 28 bytes, and unique among the managers of these two servers. */
    static final String NODE = "order-transfer";

    private static final Logger QPID = Logger.getLogger("org.apache.qpid");

    static final String ORDERS = "ADDR:orders; {create: always, node: {durable: true}}";
    static final String SHIPMENTS = "ADDR:shipments; {create: always, node: {durable: true}}";
    static final int AMOUNT = 10;
    static final int WAIT_MS = 1_000;
    static final int TRANSACTION_SECONDS = 30;

    private final String broker;
    private final String database;
    protected final TransactionManager manager;

    /** Call {@link #configure} before. */
    public OrderTransfer(String broker, String database) {
        this.broker = broker;
        this.database = database;
        this.manager = com.arjuna.ats.jta.TransactionManager.transactionManager();
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length < 3) {
            fail("usage: OrderTransfer HOST:PORT JDBC-URL FOLDER-OF-THE-LOG [ORDERS]");
        }
        QPID.setLevel(Level.OFF); // it logs each failure to connect, which is reported below
        configure(Path.of(arguments[2]));
        OrderTransfer program = new OrderTransfer(arguments[0], arguments[1]);
        program.checkParticipants();
        QPID.setLevel(Level.WARNING); // below, it reports each connection
        program.manager.setTransactionTimeout(TRANSACTION_SECONDS);
        if (arguments.length > 3) {
            program.prepareOrders(Integer.parseInt(arguments[3]));
        }
        RecoveryManager recovery = program.startRecovery();
        try {
            System.out.println(program.transferAll() + " orders shipped, none waiting");
        } catch (IllegalArgumentException error) {
            fail("an order cannot be shipped, and stays in the queue: " + error.getMessage());
        }
        recovery.terminate();
        System.exit(0); // Narayana's other threads would go on
    }

    /** Ends the program with one line if the broker or the database cannot be reached. Later on, it would try again. */
    private void checkParticipants() throws Exception {
        try (Broker queues = new Broker(false)) {
        } catch (JMSException error) {
            fail("cannot connect to the broker at " + broker + ": " + causeOf(error));
        }
        try (Bank bank = new Bank()) {
        } catch (SQLException error) {
            String address = database.split("\\?", 2)[0]; // what follows may contain a password
            fail("cannot connect to the database at " + address + ": " + causeOf(error));
        }
    }

    /** Returns the message of the first cause. Those that were wrapped around it say less. */
    private static String causeOf(Throwable error) {
        while (error.getCause() != null) {
            error = error.getCause();
        }
        return error.getMessage() != null ? error.getMessage() : error.toString();
    }

    private static void fail(String text) {
        System.err.println(text);
        System.exit(1);
    }

    /** Configures Narayana. Its settings are read when its classes are first used, so this comes before everything else. */
    static void configure(Path log) throws Exception {
        arjPropertyManager.getCoreEnvironmentBean().setNodeIdentifier(NODE);
        // Nothing outside this process asks for the state of its transactions, so it opens no port for that.
        arjPropertyManager.getCoordinatorEnvironmentBean().setTransactionStatusManagerEnable(false);
        // The decisions are files below this folder. It is needed as long as anything is in doubt.
        for (String store : new String[] {null, "communicationStore", "stateStore"}) {
            BeanPopulator.getNamedInstance(ObjectStoreEnvironmentBean.class, store).setObjectStoreDir(log.toString());
        }
        // A pass of recovery looks twice, with a pause between, and the next one follows after the period (in seconds).
        recoveryPropertyManager.getRecoveryEnvironmentBean().setPeriodicRecoveryPeriod(10);
        recoveryPropertyManager.getRecoveryEnvironmentBean().setRecoveryBackoffPeriod(1);
        recoveryPropertyManager.getRecoveryEnvironmentBean().setRecoveryModuleClassNames(List.of(
                "com.arjuna.ats.internal.arjuna.recovery.AtomicActionRecoveryModule",
                "com.arjuna.ats.internal.jta.recovery.arjunacore.XARecoveryModule"));
        // Without these settings, branches without a decision stay prepared for ever, with their rows and messages locked.
        // The filters roll back the branches of this node that have no decision in the log and no running transaction.
        jtaPropertyManager.getJTAEnvironmentBean().setXaRecoveryNodes(List.of(NODE));
        jtaPropertyManager.getJTAEnvironmentBean().setXaResourceOrphanFilterClassNames(List.of(
                JTATransactionLogXAResourceOrphanFilter.class.getName(),
                JTANodeNameXAResourceOrphanFilter.class.getName(),
                JTAActionStatusServiceXAResourceOrphanFilter.class.getName()));
        jtaPropertyManager.getJTAEnvironmentBean().setOrphanSafetyInterval(10_000);
        jtaPropertyManager.getJTAEnvironmentBean().setXAResourceRecordWrappingPlugin(new Names());
    }

    /** Starts the thread that completes what earlier processes and failures have left behind. */
    protected RecoveryManager startRecovery() {
        RecoveryManager.delayRecoveryManagerThread(); // until it has participants to ask
        RecoveryManager recovery = RecoveryManager.manager();
        XARecoveryModule module = XARecoveryModule.getRegisteredXARecoveryModule();
        module.addXAResourceRecoveryHelper(new Reconnecting(() -> new Broker(false)));
        module.addXAResourceRecoveryHelper(new Reconnecting(Bank::new));
        recovery.startRecoveryManagerThread();
        return recovery;
    }

    /** Transfers orders until none is waiting. Connects again after an error, which has rolled back its transaction. */
    int transferAll() throws Exception {
        for (int count = 0; ; ) {
            try (Broker queues = new Broker(true); Bank bank = new Bank()) {
                while (transfer(queues, bank)) {
                    count++;
                }
                return count;
            } catch (RollbackException | JMSException | SQLException error) {
                System.err.println("rolled back: " + error);
                Thread.sleep(WAIT_MS);
            }
        }
    }

    /** Transfers one order in one global transaction. Returns false if no order is waiting. */
    protected boolean transfer(Broker queues, Bank bank) throws Exception {
        manager.begin();
        boolean complete = false;
        try {
            Transaction transaction = manager.getTransaction();
            enlist(transaction, queues);
            enlist(transaction, bank);
            complete = work(queues, bank);
        } finally {
            if (!complete) {
                manager.rollback();
            }
        }
        if (complete) {
            manager.commit(); // also returns normally if the decision is in the log, but a participant cannot be reached
        }
        return complete;
    }

    private static void enlist(Transaction transaction, Link link) throws Exception {
        if (!transaction.enlistResource(link.resource())) {
            throw new RollbackException(link + " could not be enlisted");
        }
    }

    /** What the transaction is about. Returns false if no order is waiting. */
    private boolean work(Broker queues, Bank bank) throws Exception {
        Message order = queues.orders.receive(WAIT_MS);
        if (order == null) {
            return false;
        }
        if (!(order instanceof TextMessage text)) {
            throw new IllegalArgumentException("it is not a text message");
        }
        pay(bank, text.getText());
        ship(queues, text.getText());
        return true;
    }

    protected void pay(Bank bank, String order) throws SQLException {
        try (PreparedStatement charge = bank.connection.prepareStatement("UPDATE account SET balance = balance - ?");
                PreparedStatement note = bank.connection.prepareStatement("INSERT INTO payment VALUES (?)")) {
            charge.setInt(1, AMOUNT);
            charge.executeUpdate();
            note.setLong(1, Long.parseLong(order));
            note.executeUpdate();
        }
    }

    protected void ship(Broker queues, String order) throws JMSException {
        queues.shipments.send(queues.session.createTextMessage(order));
    }

    /** Lets a test see each call on a participant. */
    protected XAResource watched(String name, XAResource resource) {
        return resource;
    }

    private void prepareOrders(int count) throws Exception {
        try (Bank bank = new Bank(); Statement statement = bank.connection.createStatement()) {
            statement.execute("CREATE TABLE IF NOT EXISTS account (name text PRIMARY KEY, balance bigint NOT NULL)");
            statement.execute("CREATE TABLE IF NOT EXISTS payment (number bigint PRIMARY KEY)");
            statement.execute("INSERT INTO account VALUES ('alice', 1000000) ON CONFLICT DO NOTHING");
            statement.execute("TRUNCATE payment");
        }
        javax.jms.Connection connection = checked(new AMQConnectionFactory(url()).createConnection());
        try {
            Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
            session.createConsumer(session.createQueue(SHIPMENTS)).close(); // creates the queue
            MessageProducer orders = session.createProducer(session.createQueue(ORDERS));
            for (int number = 1; number <= count; number++) {
                orders.send(session.createTextMessage("" + number));
            }
            session.commit();
        } finally {
            connection.close();
        }
    }

    /**
     * The URL of Qpid JMS. Without nofailover the client would connect again on its own and go on in the middle of a
     * transaction, half of which the broker has rolled back. It fetches one order ahead; other programs can have the rest.
     */
    private String url() {
        return "amqp://guest:guest@orders/?brokerlist='tcp://" + broker + "'&failover='nofailover'&maxprefetch='1'";
    }

    /** Returns the connection if it uses AMQP 0-10, because this client falls back to AMQP 0-9-1, without XA, silently. */
    private static <C extends javax.jms.Connection> C checked(C connection) throws JMSException {
        if (!ProtocolVersion.v0_10.equals(((AMQConnection) connection).getProtocolVersion())) {
            connection.close();
            throw new JMSException("the broker does not speak AMQP 0-10");
        }
        return connection;
    }

    /** A connection to something that takes part in transactions. */
    protected interface Link extends AutoCloseable {
        XAResource resource() throws Exception;
    }

    /** A connection to the broker. */
    protected final class Broker implements Link {
        private final javax.jms.XAConnection connection;
        final XASession session;
        MessageConsumer orders;
        MessageProducer shipments;

        Broker(boolean working) throws Exception {
            connection = checked(new AMQConnectionFactory(url()).createXAConnection());
            session = connection.createXASession();
            if (working) {
                orders = session.createConsumer(session.createQueue(ORDERS));
                shipments = session.createProducer(session.createQueue(SHIPMENTS));
                connection.start();
            }
        }

        @Override
        public XAResource resource() {
            return new Participant("broker", watched("broker", session.getXAResource()));
        }

        @Override
        public void close() throws JMSException {
            connection.close();
        }
    }

    /** A connection to PostgreSQL. */
    protected final class Bank implements Link {
        private final XAConnection xa;
        final Connection connection;

        Bank() throws SQLException {
            PGXADataSource source = new PGXADataSource();
            source.setURL(database);
            xa = source.getXAConnection();
            connection = xa.getConnection();
        }

        @Override
        public XAResource resource() throws SQLException {
            return new Participant("bank", watched("bank", xa.getXAResource()));
        }

        @Override
        public void close() throws SQLException {
            xa.close();
        }
    }

    /**
     * Gives recovery a connection that works.
     *
     * A restart of the server breaks the connection, so it is tried each time. While it works it stays, because Narayana also
     * asks in the middle of a pass, and goes on with what it was given before: if that were closed, recovery would never end.
     */
    private static final class Reconnecting implements XAResourceRecoveryHelper {
        private final Callable<Link> connect;
        private Link link;

        Reconnecting(Callable<Link> connect) {
            this.connect = connect;
        }

        @Override
        public boolean initialise(String unused) {
            return true;
        }

        @Override
        public XAResource[] getXAResources() throws Exception {
            if (link != null && !works()) {
                Link broken = link;
                link = null;
                broken.close();
            }
            if (link == null) {
                link = connect.call();
            }
            return new XAResource[] {link.resource()};
        }

        private boolean works() throws Exception {
            try {
                link.resource().recover(XAResource.TMSTARTRSCAN | XAResource.TMENDRSCAN);
                return true;
            } catch (XAException error) {
                return false;
            }
        }
    }

    /**
     * Writes the names of the participants into the log.
     *
     * If this program dies after a participant has committed, the log still lists its branch. If a participant of the same name
     * can be asked and does not know the branch, then the branch is complete. Without names, recovery would wait for ever.
     */
    private static final class Names implements XAResourceRecordWrappingPlugin {
        @Override
        public void transcribeWrapperData(XAResourceRecord record) {
            record.setJndiName(((XAResourceWrapper) record.value()).getJndiName());
        }

        @Override
        public Integer getEISName(XAResource resource) {
            return 0; // an optional number for use in xids
        }

        @Override
        public String getEISName(Integer number) {
            return "";
        }
    }

    /** A participant with a name, whose errors are those that Narayana expects. */
    private static final class Participant implements XAResourceWrapper {
        private final String name;
        private final XAResource resource;

        Participant(String name, XAResource resource) {
            this.name = name;
            this.resource = resource;
        }

        private interface Call<T> {
            T on(XAResource resource) throws XAException;
        }

        /** Qpid JMS throws other exceptions when its connection breaks. To Narayana, only XAER_RMFAIL means that. */
        private <T> T call(Call<T> call) throws XAException {
            try {
                return call.on(resource);
            } catch (RuntimeException error) {
                throw failure(error);
            }
        }

        /**
         * Narayana takes XAER_RMERR in the second phase as a rollback against its decision, and leaves it to an operator.
         * The driver of PostgreSQL also answers it when an administrator ends its session, or the server shuts down. The
         * branch stays prepared then, so it is right to try again.
         */
        private void complete(Call<Void> call) throws XAException {
            try {
                call(call);
            } catch (XAException error) {
                throw error.errorCode == XAException.XAER_RMERR ? failure(error) : error;
            }
        }

        private static XAException failure(Exception error) {
            XAException failure = new XAException(XAException.XAER_RMFAIL);
            failure.initCause(error);
            return failure;
        }

        @Override
        public void commit(Xid xid, boolean onePhase) throws XAException {
            Call<Void> commit = it -> {
                it.commit(xid, onePhase);
                return null;
            };
            if (onePhase) {
                call(commit);
            } else {
                complete(commit);
            }
        }

        @Override
        public void rollback(Xid xid) throws XAException {
            complete(it -> {
                it.rollback(xid);
                return null;
            });
        }

        @Override
        public int prepare(Xid xid) throws XAException {
            return call(it -> it.prepare(xid));
        }

        @Override
        public void start(Xid xid, int flags) throws XAException {
            call(it -> {
                it.start(xid, flags);
                return null;
            });
        }

        @Override
        public void end(Xid xid, int flags) throws XAException {
            call(it -> {
                it.end(xid, flags);
                return null;
            });
        }

        @Override
        public void forget(Xid xid) throws XAException {
            call(it -> {
                it.forget(xid);
                return null;
            });
        }

        @Override
        public Xid[] recover(int flag) throws XAException {
            return call(it -> it.recover(flag));
        }

        @Override
        public boolean isSameRM(XAResource other) throws XAException {
            return call(it -> it.isSameRM(other instanceof Participant participant ? participant.resource : other));
        }

        @Override
        public int getTransactionTimeout() throws XAException {
            return call(XAResource::getTransactionTimeout);
        }

        @Override
        public boolean setTransactionTimeout(int seconds) throws XAException {
            return call(it -> it.setTransactionTimeout(seconds));
        }

        @Override
        public XAResource getResource() {
            return resource;
        }

        @Override
        public String getProductName() {
            return name;
        }

        @Override
        public String getProductVersion() {
            return "";
        }

        @Override
        public String getJndiName() {
            return name;
        }
    }
}
