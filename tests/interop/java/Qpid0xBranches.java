import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import javax.jms.*;
import javax.transaction.xa.XAException;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;

/** Scenarios of Qpid JMS AMQP 0-x about XAConnection: the branches of distributed transactions. */
public class Qpid0xBranches extends Qpid0x {
    /** An xid whose global part is a text. */
    private record Branch(int getFormatId, String global, String qualifier) implements Xid {
        @Override
        public byte[] getGlobalTransactionId() {
            return global.getBytes(StandardCharsets.UTF_8);
        }

        @Override
        public byte[] getBranchQualifier() {
            return qualifier.getBytes(StandardCharsets.UTF_8);
        }
    }

    private interface BranchWork {
        void with(XASession session, XAResource resource) throws Exception;
    }

    private interface ResourceAttempt {
        void with(XAResource resource) throws Exception;
    }

    private static final AtomicInteger count = new AtomicInteger();

    private static Branch branch(String name) {
        return new Branch(7, "0x." + name + "." + count.incrementAndGet(), "branch");
    }

    private static void branches(String client, BranchWork work) throws Exception {
        XAConnection connection = checked(factory(client, "").createXAConnection());
        try {
            connection.start();
            XASession session = connection.createXASession();
            work.with(session, session.getXAResource());
        } finally {
            connection.close();
        }
    }

    private static void branches(BranchWork work) throws Exception {
        branches("branches", work);
    }

    /** An error ends the session, after which this client opens another one; so each call has a connection of its own. */
    private static void fails(int code, ResourceAttempt attempt) throws Exception {
        branches((session, resource) -> fails(code, () -> attempt.with(resource)));
    }

    private static void fails(int code, Attempt attempt) throws Exception {
        try {
            attempt.run();
        } catch (XAException error) {
            equal(error.errorCode, code);
            return;
        }
        throw new AssertionError("not refused with " + code);
    }

    /** Moves one message from a queue to another one in a branch, and ends it. */
    private static void move(XASession session, Xid xid, String from, String to) throws Exception {
        XAResource resource = session.getXAResource();
        resource.start(xid, XAResource.TMNOFLAGS);
        MessageConsumer consumer = session.createConsumer(queue(session, from));
        String text = text(consumer);
        send(session, queue(session, to), text);
        resource.end(xid, XAResource.TMSUCCESS);
        consumer.close();
    }

    private static void fill(String queue, String... texts) throws Exception {
        session(session -> send(session, queue(session, queue), texts));
    }

    private static boolean isInDoubt(XAResource resource, Xid xid) throws XAException {
        for (Xid found : resource.recover(XAResource.TMSTARTRSCAN | XAResource.TMENDRSCAN)) {
            if (found.getFormatId() == xid.getFormatId()
                    && Arrays.equals(found.getGlobalTransactionId(), xid.getGlobalTransactionId())
                    && Arrays.equals(found.getBranchQualifier(), xid.getBranchQualifier())) {
                return true;
            }
        }
        return false;
    }

    @Scenario
    static void twoPhaseCommitMoves() throws Exception {
        fill("two.from", "m");
        Xid xid = branch("two");
        branches((session, resource) -> {
            move(session, xid, "two.from", "two.to");
            checkQueue("two.to");
            equal(resource.prepare(xid), XAResource.XA_OK);
            equal(isInDoubt(resource, xid), true);
            checkQueue("two.to");
            checkQueue("two.from");
            resource.commit(xid, false);
            equal(isInDoubt(resource, xid), false);
        });
        checkQueue("two.from");
        checkQueue("two.to", "m");
    }

    @Scenario
    static void onePhaseCommitMoves() throws Exception {
        fill("one.from", "m");
        Xid xid = branch("one");
        branches((session, resource) -> {
            move(session, xid, "one.from", "one.to");
            resource.commit(xid, true);
        });
        checkQueue("one.from");
        checkQueue("one.to", "m");
    }

    @Scenario
    static void rollbackReturnsBeforeAndAfterPrepare() throws Exception {
        for (boolean prepared : new boolean[] {false, true}) {
            fill("back.from", "m", "n");
            Xid xid = branch("back");
            branches((session, resource) -> {
                move(session, xid, "back.from", "back.to");
                if (prepared) {
                    equal(resource.prepare(xid), XAResource.XA_OK);
                }
                resource.rollback(xid);
            });
            checkQueue("back.to");
            session(session -> {
                MessageConsumer consumer = session.createConsumer(queue(session, "back.from"));
                Message first = receive(consumer);
                equal(((TextMessage) first).getText(), "m");
                equal(first.getJMSRedelivered(), true);
                checkTexts(consumer, "n");
            });
        }
    }

    @Scenario
    static void suspendedBranchResumes() throws Exception {
        Xid xid = branch("suspended");
        Xid other = branch("other");
        branches((session, resource) -> {
            Queue queue = queue(session, "suspended");
            resource.start(xid, XAResource.TMNOFLAGS);
            send(session, queue, "a");
            resource.end(xid, XAResource.TMSUSPEND);
            resource.start(xid, XAResource.TMRESUME);
            send(session, queue, "b");
            resource.end(xid, XAResource.TMSUCCESS);
            equal(resource.prepare(xid), XAResource.XA_OK);
            resource.commit(xid, false);
            resource.start(other, XAResource.TMNOFLAGS);
            send(session, queue, "c");
            resource.end(other, XAResource.TMSUCCESS);
            resource.rollback(other);
        });
        checkQueue("suspended", "a", "b");
    }

    @Scenario
    static void sessionsJoinABranch() throws Exception {
        fill("joined.from", "m");
        Xid xid = branch("joined");
        branches("first", (first, one) -> branches("second", (second, other) -> {
            one.start(xid, XAResource.TMNOFLAGS);
            MessageConsumer consumer = first.createConsumer(queue(first, "joined.from"));
            checkTexts(consumer, "m");
            other.start(xid, XAResource.TMJOIN);
            send(second, queue(second, "joined.to"), "n");
            one.end(xid, XAResource.TMSUCCESS);
            other.end(xid, XAResource.TMSUCCESS);
            equal(other.prepare(xid), XAResource.XA_OK);
            one.commit(xid, false);
        }));
        checkQueue("joined.from");
        checkQueue("joined.to", "n");
    }

    /**
     * A transaction manager joins resources that are the same. This client then starts and ends the branch on one of its
     * sessions twice. If the resources differ, which costs a branch more, everything goes well.
     */
    @Scenario
    static void resourcesOfTwoSessionsHaveTheirOwnBranches() throws Exception {
        fill("same.from", "m");
        Xid consuming = new Branch(7, "0x.same", "1");
        Xid sending = new Branch(7, "0x.same", "2");
        branches("first", (first, one) -> branches("second", (second, other) -> {
            equal(one.isSameRM(one), true);
            equal(other.isSameRM(one), false);
            one.start(consuming, XAResource.TMNOFLAGS);
            other.start(sending, XAResource.TMNOFLAGS);
            MessageConsumer consumer = first.createConsumer(queue(first, "same.from"));
            send(second, queue(second, "same.to"), text(consumer));
            other.end(sending, XAResource.TMSUCCESS);
            one.end(consuming, XAResource.TMSUCCESS);
            equal(one.prepare(consuming), XAResource.XA_OK);
            equal(other.prepare(sending), XAResource.XA_OK);
            one.commit(consuming, false);
            other.commit(sending, false);
        }));
        checkQueue("same.from");
        checkQueue("same.to", "m");
    }

    @Scenario
    static void failedWorkRollsBack() throws Exception {
        fill("failed.from", "m");
        Xid xid = branch("failed");
        branches((session, resource) -> {
            resource.start(xid, XAResource.TMNOFLAGS);
            MessageConsumer consumer = session.createConsumer(queue(session, "failed.from"));
            checkTexts(consumer, "m");
            send(session, queue(session, "failed.to"), "m");
            try {
                resource.end(xid, XAResource.TMFAIL);
            } catch (XAException marked) { // XA permits both answers
                equal(marked.errorCode, XAException.XA_RBROLLBACK);
            }
            fails(XAException.XA_RBROLLBACK, () -> resource.prepare(xid));
        });
        checkQueue("failed.from", "m");
        checkQueue("failed.to");
    }

    /** A vote without work is read-only, and completes the branch. */
    @Scenario
    static void emptyBranchIsReadOnly() throws Exception {
        Xid xid = branch("empty");
        branches((session, resource) -> {
            resource.start(xid, XAResource.TMNOFLAGS);
            resource.end(xid, XAResource.TMSUCCESS);
            equal(resource.prepare(xid), XAResource.XA_RDONLY);
            equal(isInDoubt(resource, xid), false);
        });
    }

    @Scenario
    static void wrongCallsHaveTheCodesOfXa() throws Exception {
        Xid xid = branch("codes");
        fails(XAException.XAER_NOTA, other -> other.commit(xid, false));
        fails(XAException.XAER_NOTA, other -> other.rollback(xid));
        fails(XAException.XAER_NOTA, other -> other.prepare(xid));
        fails(XAException.XAER_NOTA, other -> other.start(xid, XAResource.TMJOIN));
        branches((session, resource) -> {
            resource.start(xid, XAResource.TMNOFLAGS);
            fails(XAException.XAER_DUPID, other -> other.start(xid, XAResource.TMNOFLAGS));
            fails(XAException.XAER_PROTO, other -> other.prepare(xid));
            resource.end(xid, XAResource.TMSUCCESS);
            fails(XAException.XAER_PROTO, other -> other.commit(xid, false));
            resource.rollback(xid);
            fails(XAException.XAER_NOTA, other -> other.rollback(xid));
        });
    }

    @Scenario
    static void closedConnectionRollsBack() throws Exception {
        fill("closed.from", "m");
        Xid xid = branch("closed");
        branches((session, resource) -> {
            resource.start(xid, XAResource.TMNOFLAGS);
            MessageConsumer consumer = session.createConsumer(queue(session, "closed.from"));
            checkTexts(consumer, "m");
            send(session, queue(session, "closed.to"), "m");
        });
        checkQueue("closed.to");
        checkQueue("closed.from", "m");
    }

    @Scenario
    static void timeoutRollsBack() throws Exception {
        fill("timeout.from", "m");
        Xid xid = branch("timeout");
        branches((session, resource) -> {
            equal(resource.setTransactionTimeout(1), true);
            equal(resource.getTransactionTimeout(), 1);
            move(session, xid, "timeout.from", "timeout.to");
            checkQueue("timeout.from", "m");
            fails(XAException.XA_RBTIMEOUT, () -> resource.prepare(xid));
        });
        checkQueue("timeout.to");
    }

    /** Several messages, consumed and sent by one session in a row of branches, with messages in its prefetch. */
    @Scenario
    static void manyBranchesInARow() throws Exception {
        List<String> texts = new ArrayList<>();
        for (int i = 0; i < 50; i++) {
            texts.add("" + i);
        }
        fill("row.from", texts.toArray(new String[0]));
        branches((session, resource) -> {
            MessageConsumer consumer = session.createConsumer(queue(session, "row.from"));
            MessageProducer producer = session.createProducer(queue(session, "row.to"));
            for (String expected : texts) {
                Xid xid = branch("row");
                resource.start(xid, XAResource.TMNOFLAGS);
                producer.send(receive(consumer));
                resource.end(xid, XAResource.TMSUCCESS);
                equal(resource.prepare(xid), XAResource.XA_OK);
                resource.commit(xid, false);
            }
        });
        checkQueue("row.from");
        checkQueue("row.to", texts.toArray(new String[0]));
    }

    /** Prepares two branches. The caller kills the broker, starts it, and runs recoverAfterAKill. */
    static void prepareBeforeAKill() throws Exception {
        fill("recovered.from", "commit", "roll back", "rest");
        branches((session, resource) -> {
            for (String name : new String[] {"commit", "rollback"}) {
                Xid xid = new Branch(7, "0x.recovered", name);
                move(session, xid, "recovered.from", "recovered.to");
                equal(resource.prepare(xid), XAResource.XA_OK);
            }
        });
    }

    static void recoverAfterAKill() throws Exception {
        checkQueue("recovered.to");
        branches((session, resource) -> {
            equal(isInDoubt(resource, new Branch(8, "0x.recovered", "commit")), false);
            for (String name : new String[] {"commit", "rollback"}) {
                equal(isInDoubt(resource, new Branch(7, "0x.recovered", name)), true);
            }
            resource.commit(new Branch(7, "0x.recovered", "commit"), false);
            resource.rollback(new Branch(7, "0x.recovered", "rollback"));
            for (String name : new String[] {"commit", "rollback"}) {
                equal(isInDoubt(resource, new Branch(7, "0x.recovered", name)), false);
            }
        });
        checkQueue("recovered.to", "commit");
        checkQueue("recovered.from", "roll back", "rest");
    }

    /** Prepares two branches, which an operator then completes. The caller runs forgetHeuristics after that. */
    static void prepareForAnOperator() throws Exception {
        fill("heuristic.from", "commit", "roll back");
        branches((session, resource) -> {
            for (String name : new String[] {"commit", "rollback"}) {
                Xid xid = new Branch(7, "0x.heuristic", name);
                move(session, xid, "heuristic.from", "heuristic.to");
                equal(resource.prepare(xid), XAResource.XA_OK);
            }
        });
    }

    static void forgetHeuristics() throws Exception {
        Xid committed = new Branch(7, "0x.heuristic", "commit");
        Xid rolledBack = new Branch(7, "0x.heuristic", "rollback");
        branches((session, resource) -> {
            equal(isInDoubt(resource, committed), true);
            fails(XAException.XA_HEURCOM, () -> resource.commit(committed, false));
            fails(XAException.XA_HEURRB, () -> resource.commit(rolledBack, false));
            resource.forget(committed);
            resource.forget(rolledBack);
            equal(resource.recover(XAResource.TMSTARTRSCAN | XAResource.TMENDRSCAN).length, 0);
            fails(XAException.XAER_NOTA, () -> resource.forget(committed));
        });
        checkQueue("heuristic.to", "commit");
        checkQueue("heuristic.from", "roll back");
    }
}
