// Scenarios of go-amqp (AMQP 1.0): `scenarios SCENARIO PORT` exits with status 0 if the broker behaves as expected. Names
// of queues begin with `go.`.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/Azure/go-amqp"
)

const patience = 30 * time.Second

var scenarios = map[string]func(context.Context, *amqp.Session) error{
	"publishAndConsume":    publishAndConsume,
	"outcomesOfDeliveries": outcomesOfDeliveries,
	"unroutableMessage":    unroutableMessage,
	"refusedLinks":         refusedLinks,
	"creditAndDrain":       creditAndDrain,
	"largeMessage":         largeMessage,
	"dynamicNode":          dynamicNode,
	"presettled":           presettled,
}

// Scenarios that need more of the test than a running broker.
var prepared = map[string]func(context.Context, *amqp.Session) error{
	"fullQueue":     fullQueue,
	"goOnAfterKill": receiveAll,
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := run(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name, port string) error {
	if name == "wrongPassword" {
		_, err := dial(ctx, port, "wrong")
		return check(err != nil && ctx.Err() == nil, "the broker accepted a wrong password")
	}
	scenario, found := scenarios[name]
	if !found {
		if scenario, found = prepared[name]; !found {
			return fmt.Errorf("there is no scenario %s", name)
		}
	}
	connection, err := dial(ctx, port, "guest")
	if err != nil {
		return err
	}
	session, err := connection.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	if name == "goOnAfterKill" {
		if session, connection, err = throughKill(ctx, session, port); err != nil {
			return err
		}
	}
	return errors.Join(scenario(ctx, session), connection.Close())
}

func dial(ctx context.Context, port, password string) (*amqp.Conn, error) {
	return amqp.Dial(ctx, "amqp://127.0.0.1:"+port, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain("guest", password)})
}

// throughKill sends 50 messages, prints a line, and waits until the broker is killed and started again, when the test closes
// the standard input. Then it connects again, as applications must do with go-amqp, and sends 50 more.
func throughKill(ctx context.Context, session *amqp.Session, port string) (*amqp.Session, *amqp.Conn, error) {
	sender, err := session.NewSender(ctx, "go.killed", nil)
	if err != nil {
		return nil, nil, err
	}
	if err := sendNumbers(ctx, sender, 0, 50); err != nil {
		return nil, nil, err
	}
	fmt.Println("sent")
	if _, err := io.ReadAll(os.Stdin); err != nil {
		return nil, nil, err
	}
	var lost *amqp.ConnError
	if err := sendNumbers(ctx, sender, 50, 1); !errors.As(err, &lost) {
		return nil, nil, fmt.Errorf("the loss of the connection is reported as: %v", err)
	}
	connection, err := dial(ctx, port, "guest")
	if err != nil {
		return nil, nil, err
	}
	if session, err = connection.NewSession(ctx, nil); err != nil {
		return nil, nil, err
	}
	if sender, err = session.NewSender(ctx, "go.killed", nil); err != nil {
		return nil, nil, err
	}
	return session, connection, sendNumbers(ctx, sender, 50, 50)
}

func sendNumbers(ctx context.Context, sender *amqp.Sender, first, count int) error {
	for i := first; i < first+count; i++ {
		message := amqp.NewMessage([]byte{byte(i)})
		message.Header = &amqp.MessageHeader{Durable: true}
		if err := sender.Send(ctx, message, nil); err != nil {
			return err
		}
	}
	return nil
}

func receiveAll(ctx context.Context, session *amqp.Session) error {
	receiver, err := session.NewReceiver(ctx, "go.killed", &amqp.ReceiverOptions{Credit: 100})
	if err != nil {
		return err
	}
	for i := range 100 {
		if err := take(ctx, receiver, byte(i)); err != nil {
			return err
		}
	}
	return nil
}

func check(holds bool, format string, values ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf(format, values...)
}

// links opens a sender and a receiver for a queue. The receiver gets its credit from next.
func links(ctx context.Context, session *amqp.Session, queue string) (*amqp.Sender, *amqp.Receiver, error) {
	sender, err := session.NewSender(ctx, queue, nil)
	if err != nil {
		return nil, nil, err
	}
	receiver, err := session.NewReceiver(ctx, queue, &amqp.ReceiverOptions{Credit: -1})
	return sender, receiver, err
}

func next(ctx context.Context, receiver *amqp.Receiver) (*amqp.Message, error) {
	if err := receiver.IssueCredit(1); err != nil {
		return nil, err
	}
	return receiver.Receive(ctx, nil)
}

// checkEmpty offers a credit for a moment, in which nothing must arrive. Draining would prove more, but go-amqp drains with
// a credit of 0.
func checkEmpty(ctx context.Context, receiver *amqp.Receiver) error {
	brief, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	message, err := next(brief, receiver)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("the queue has another message: %v (%v)", message, err)
}

func publishAndConsume(ctx context.Context, session *amqp.Session) error {
	sender, receiver, err := links(ctx, session, "go.publish")
	if err != nil {
		return err
	}
	for i := range 20 {
		subject := "s"
		sent := &amqp.Message{
			Header:                &amqp.MessageHeader{Durable: true, Priority: 7},
			Properties:            &amqp.MessageProperties{MessageID: uint64(i), Subject: &subject},
			ApplicationProperties: map[string]any{"key": "value"},
			Value:                 map[string]any{"number": int64(i)},
		}
		if err := sender.Send(ctx, sent, nil); err != nil {
			return err
		}
		got, err := next(ctx, receiver)
		if err != nil {
			return err
		}
		value := got.Value.(map[string]any)
		same := value["number"] == int64(i) && got.Properties.MessageID == uint64(i) && *got.Properties.Subject == "s" &&
			got.ApplicationProperties["key"] == "value" && got.Header.Durable && got.Header.Priority == 7
		if err := errors.Join(check(same, "message %d changed: %v", i, got), receiver.AcceptMessage(ctx, got)); err != nil {
			return err
		}
	}
	return checkEmpty(ctx, receiver)
}

func outcomesOfDeliveries(ctx context.Context, session *amqp.Session) error {
	sender, receiver, err := links(ctx, session, "go.outcomes")
	if err != nil {
		return err
	}
	for _, body := range []string{"first", "second"} {
		if err := sender.Send(ctx, amqp.NewMessage([]byte(body)), nil); err != nil {
			return err
		}
	}
	steps := []struct {
		body   string
		count  uint32
		settle func(*amqp.Message) error
	}{
		{"first", 0, func(m *amqp.Message) error { return receiver.ReleaseMessage(ctx, m) }},
		{"first", 0, func(m *amqp.Message) error {
			return receiver.ModifyMessage(ctx, m, &amqp.ModifyMessageOptions{DeliveryFailed: true})
		}},
		{"first", 1, func(m *amqp.Message) error {
			return receiver.RejectMessage(ctx, m, &amqp.Error{Condition: "app:unusable"})
		}},
		{"second", 0, func(m *amqp.Message) error { return receiver.AcceptMessage(ctx, m) }},
	}
	for i, step := range steps {
		got, err := next(ctx, receiver)
		if err != nil {
			return err
		}
		var count uint32
		if got.Header != nil {
			count = got.Header.DeliveryCount
		}
		same := string(got.GetData()) == step.body && count == step.count
		if err := check(same, "step %d: %s, delivered %d times before", i, got.GetData(), count); err != nil {
			return err
		}
		if err := step.settle(got); err != nil {
			return err
		}
	}
	return checkEmpty(ctx, receiver)
}

func unroutableMessage(ctx context.Context, session *amqp.Session) error {
	sender, err := session.NewSender(ctx, "/exchanges/amq.direct/nowhere", nil)
	if err != nil {
		return err
	}
	receipt, err := sender.SendWithReceipt(ctx, amqp.NewMessage([]byte("lost")), nil)
	if err != nil {
		return err
	}
	state, err := receipt.Wait(ctx)
	if err != nil {
		return err
	}
	_, released := state.(*amqp.StateReleased)
	return check(released, "the outcome is %T", state)
}

// fullQueue sends to a queue that the test has filled.
func fullQueue(ctx context.Context, session *amqp.Session) error {
	sender, err := session.NewSender(ctx, "/queues/go.full", nil)
	if err != nil {
		return err
	}
	receipt, err := sender.SendWithReceipt(ctx, amqp.NewMessage([]byte("does not fit")), nil)
	if err != nil {
		return err
	}
	state, err := receipt.Wait(ctx)
	if err != nil {
		return err
	}
	rejected, found := state.(*amqp.StateRejected)
	if !found {
		return fmt.Errorf("the outcome is %T", state)
	}
	condition := rejected.Error.Condition
	return check(condition == amqp.ErrCondResourceLimitExceeded, "rejected with %s", condition)
}

func presettled(ctx context.Context, session *amqp.Session) error {
	sender, err := session.NewSender(ctx, "go.presettled", &amqp.SenderOptions{SettlementMode: amqp.SenderSettleModeSettled.Ptr()})
	if err != nil {
		return err
	}
	options := &amqp.ReceiverOptions{Credit: 100, RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr()}
	receiver, err := session.NewReceiver(ctx, "go.presettled", options)
	if err != nil {
		return err
	}
	if err := sendNumbers(ctx, sender, 0, 100); err != nil {
		return err
	}
	for i := range 100 {
		got, err := receiver.Receive(ctx, nil)
		if err != nil {
			return err
		}
		if err := check(bytes.Equal(got.GetData(), []byte{byte(i)}), "%v instead of %d", got.GetData(), i); err != nil {
			return err
		}
	}
	return nil
}

func refusedLinks(ctx context.Context, session *amqp.Session) error {
	_, publishing := session.NewSender(ctx, "/queues/no-such-queue", nil)
	_, consuming := session.NewReceiver(ctx, "/queues/no-such-queue", nil)
	for _, err := range []error{publishing, consuming} {
		var refusal *amqp.Error
		var link *amqp.LinkError
		if errors.As(err, &link) {
			refusal = link.RemoteErr
		} else {
			errors.As(err, &refusal)
		}
		if refusal == nil || refusal.Condition != amqp.ErrCondNotFound {
			return fmt.Errorf("the link was not refused with not-found: %v", err)
		}
	}
	sender, err := session.NewSender(ctx, "go.refused", nil)
	if err != nil {
		return err
	}
	return sender.Send(ctx, amqp.NewMessage([]byte("the session goes on")), nil)
}

func creditAndDrain(ctx context.Context, session *amqp.Session) error {
	sender, receiver, err := links(ctx, session, "go.credit")
	if err != nil {
		return err
	}
	for i := range 10 {
		if err := sender.Send(ctx, amqp.NewMessage([]byte{byte(i)}), nil); err != nil {
			return err
		}
	}
	if err := receiver.IssueCredit(7); err != nil {
		return err
	}
	for i := range 7 {
		if err := take(ctx, receiver, byte(i)); err != nil {
			return err
		}
	}
	if err := receiver.DrainCredit(ctx, nil); err != nil {
		return err
	}
	if err := check(receiver.Prefetched() == nil, "a message came without credit"); err != nil {
		return err
	}
	if err := receiver.IssueCredit(20); err != nil {
		return err
	}
	for i := range 3 {
		if err := take(ctx, receiver, byte(7+i)); err != nil {
			return err
		}
	}
	return receiver.DrainCredit(ctx, nil)
}

// take accepts the next message of a receiver that has credit.
func take(ctx context.Context, receiver *amqp.Receiver, body byte) error {
	got, err := receiver.Receive(ctx, nil)
	if err != nil {
		return err
	}
	same := bytes.Equal(got.GetData(), []byte{body})
	return errors.Join(check(same, "%v instead of %d", got.GetData(), body), receiver.AcceptMessage(ctx, got))
}

func largeMessage(ctx context.Context, session *amqp.Session) error {
	sender, receiver, err := links(ctx, session, "go.large")
	if err != nil {
		return err
	}
	body := bytes.Repeat([]byte("0123456789abc"), 230_000)
	if err := sender.Send(ctx, amqp.NewMessage(body), nil); err != nil {
		return err
	}
	got, err := next(ctx, receiver)
	if err != nil {
		return err
	}
	return errors.Join(check(bytes.Equal(got.GetData(), body), "the body changed"), receiver.AcceptMessage(ctx, got))
}

func dynamicNode(ctx context.Context, session *amqp.Session) error {
	answers, err := session.NewReceiver(ctx, "", &amqp.ReceiverOptions{DynamicAddress: true, Credit: -1})
	if err != nil {
		return err
	}
	sender, err := session.NewSender(ctx, answers.Address(), nil)
	if err != nil {
		return err
	}
	if err := sender.Send(ctx, amqp.NewMessage([]byte("answer")), nil); err != nil {
		return err
	}
	got, err := next(ctx, answers)
	if err != nil {
		return err
	}
	return errors.Join(check(string(got.GetData()) == "answer", "got %s", got.GetData()), answers.AcceptMessage(ctx, got))
}
