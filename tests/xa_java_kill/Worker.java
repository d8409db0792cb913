import com.arjuna.ats.arjuna.common.ObjectStoreEnvironmentBean;
import com.arjuna.ats.arjuna.common.Uid;
import com.arjuna.ats.arjuna.common.recoveryPropertyManager;
import com.arjuna.ats.arjuna.exceptions.ObjectStoreException;
import com.arjuna.ats.arjuna.state.OutputObjectState;
import com.arjuna.ats.internal.arjuna.objectstore.ShadowNoFileLockStore;
import com.arjuna.ats.jta.common.jtaPropertyManager;
import com.arjuna.common.internal.util.propertyservice.BeanPopulator;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.file.Path;
import java.sql.SQLException;
import java.util.Map;
import javax.jms.JMSException;
import javax.transaction.xa.XAException;
import javax.transaction.xa.XAResource;

/**
 * The example with steps: `Worker BROKER DATABASE LOG TRANSFERS STEP ORDER` moves TRANSFERS orders and recovers.
 *
 * At the step STEP of the transfer ORDER, counted from 0, it prints the step and waits for a line on stdin, so that anything
 * can be killed there. The steps of recovery do not count transfers. The other lines say how a transfer ended, and are
 * followed by a wait as well: `moved`, `failed: REASON`, and `finished`.
 */
public class Worker extends OrderTransfer {
    private static final BufferedReader answers = new BufferedReader(new InputStreamReader(System.in));
    private static final Map<String, String> recovering =
            Map.of("recover", "ask", "commit", "complete", "rollback", "complete");
    private static final Map<String, String> past = Map.ofEntries(
            Map.entry("start", "started"), Map.entry("end", "ended"), Map.entry("prepare", "prepared"),
            Map.entry("commit", "committed"), Map.entry("rollback", "rolled back"), Map.entry("ask", "asked"),
            Map.entry("complete", "completed"));

    private static final String NONE = "none";
    private static final int TIMEOUT_SECONDS = 10;

    private static Thread application;
    private static String armedStep;
    private static int armedOrder;
    private static int order = -1;

    private final int transfers;

    private Worker(String broker, String database, int transfers) {
        super(broker, database);
        this.transfers = transfers;
    }

    public static void main(String[] arguments) throws Exception {
        application = Thread.currentThread();
        armedStep = arguments[4];
        armedOrder = Integer.parseInt(arguments[5]);
        configure(Path.of(arguments[2]));
        // Passes follow one another, so that a test need not wait for them.
        recoveryPropertyManager.getRecoveryEnvironmentBean().setPeriodicRecoveryPeriod(1);
        jtaPropertyManager.getJTAEnvironmentBean().setOrphanSafetyInterval(100);
        BeanPopulator.getDefaultInstance(ObjectStoreEnvironmentBean.class).setObjectStoreType(Store.class.getName());
        Worker worker = new Worker(arguments[0], arguments[1], Integer.parseInt(arguments[3]));
        worker.manager.setTransactionTimeout(TIMEOUT_SECONDS);
        worker.startRecovery();
        worker.transferAll();
        if (worker.transfers == 0 && !armedStep.equals(NONE)) {
            application.join(); // for ever: recovery is to reach the step
        }
        say("finished");
        System.exit(0);
    }

    @Override
    protected boolean transfer(Broker queues, Bank bank) throws Exception {
        if (order + 1 == transfers) {
            return false;
        }
        order++;
        try {
            step("transaction");
            check(super.transfer(queues, bank), "there are orders");
            step("done");
        } catch (Exception error) {
            say("failed: " + error);
            throw error;
        }
        say("moved");
        return true;
    }

    @Override
    protected void pay(Bank bank, String order) throws SQLException {
        step("received");
        super.pay(bank, order);
        step("updated");
    }

    @Override
    protected void ship(Broker queues, String order) throws JMSException {
        super.ship(queues, order);
        step("sent");
    }

    /**
     * Makes a step before and after each call that belongs to a transaction. At a step `unanswered CALL`, the call has been
     * executed, but fails, as if the participant had died before it answered.
     */
    @Override
    protected XAResource watched(String name, XAResource resource) {
        return (XAResource) Proxy.newProxyInstance(
                Worker.class.getClassLoader(), resource.getClass().getInterfaces(), (proxy, method, arguments) -> {
                    String call = method.getName();
                    if (call.equals("equals")) {
                        return proxy == arguments[0];
                    }
                    if (Thread.currentThread() != application) {
                        call = recovering.getOrDefault(call, call);
                    }
                    if (!past.containsKey(call)) {
                        return called(resource, method, arguments);
                    }
                    step(call + " " + name);
                    Object result = called(resource, method, arguments);
                    if (step("unanswered " + call + " " + name)) {
                        throw new XAException(XAException.XAER_RMFAIL);
                    }
                    step(past.get(call) + " " + name);
                    return result;
                });
    }

    private static Object called(Object target, java.lang.reflect.Method method, Object[] arguments) throws Throwable {
        try {
            return method.invoke(target, arguments);
        } catch (InvocationTargetException wrapper) {
            throw wrapper.getCause();
        }
    }

    /** Returns true if this was the step to wait at. */
    private static boolean step(String name) {
        boolean here = Thread.currentThread() != application || order == armedOrder;
        boolean armed = here && name.equals(armedStep);
        if (armed) {
            say(name);
        }
        return armed;
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        try {
            if (answers.readLine() == null) {
                System.exit(1);
            }
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    /**
     * The log of decisions, with steps.
     *
     * Recovery writes too: it notes a branch again that it could not complete. That is not the decision, so it is no step.
     * The program may be waiting at another step by then, which would keep recovery from ever trying again.
     */
    public static class Store extends ShadowNoFileLockStore {
        public Store(ObjectStoreEnvironmentBean settings) throws ObjectStoreException {
            super(settings);
        }

        @Override
        public boolean write_committed(Uid id, String type, OutputObjectState state) throws ObjectStoreException {
            if (Thread.currentThread() != application) {
                return super.write_committed(id, type, state);
            }
            step("decide");
            boolean written = super.write_committed(id, type, state);
            step("decided");
            return written;
        }

        @Override
        public boolean remove_committed(Uid id, String type) throws ObjectStoreException {
            step(Thread.currentThread() == application ? "forget" : "clear");
            boolean removed = super.remove_committed(id, type);
            step(Thread.currentThread() == application ? "forgotten" : "cleared");
            return removed;
        }
    }
}
