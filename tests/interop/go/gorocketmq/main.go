// Scenarios of RocketMQ's Go client. The program reads lines from its input, NAME and PORT with a tab between them, and
// prints `NAME ok` or `NAME failed: REASON` for each. The topics go-normal, go-fifo, go-delay, go-pushed, go-tx and go-survivors exist.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const (
	patience  = 60 * time.Second
	await     = 5 * time.Second
	invisible = 20 * time.Second
)

var scenarios = map[string]func() error{
	"sendAndConsume":  sendAndConsume,
	"invisibleTime":   invisibleTime,
	"messageGroups":   messageGroups,
	"delay":           delay,
	"wrongType":       wrongType,
	"push":            push,
	"transactions":    transactions,
	"workBeforeAKill": workBeforeAKill,
	"goOnAfterAKill":  goOnAfterAKill,
}

var (
	ctx       = context.Background()
	endpoint  string
	survivor  rmq.Producer
	survivors decider
)

func main() {
	rmq.EnableSsl = false
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		name, port, _ := strings.Cut(lines.Text(), "\t")
		endpoint = "127.0.0.1:" + port
		if err := scenarios[name](); err != nil {
			fmt.Printf("%s failed: %s\n", name, strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Printf("%s ok\n", name)
		}
	}
}

// decider answers each check as the message's body says, and counts the checks.
type decider struct {
	lock   sync.Mutex
	checks map[string]int
}

func (d *decider) check(message *rmq.MessageView) rmq.TransactionResolution {
	d.lock.Lock()
	defer d.lock.Unlock()
	if d.checks == nil {
		d.checks = map[string]int{}
	}
	text := string(message.GetBody())
	d.checks[text]++
	switch {
	case strings.HasPrefix(text, "commit"), strings.HasPrefix(text, "later") && d.checks[text] > 1:
		return rmq.COMMIT
	case strings.HasPrefix(text, "rollback"):
		return rmq.ROLLBACK
	}
	return rmq.UNKNOWN
}

func config(group string) *rmq.Config {
	return &rmq.Config{Endpoint: endpoint, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{}}
}

func started(topic string, checker *decider) (rmq.Producer, error) {
	options := []rmq.ProducerOption{rmq.WithTopics(topic)}
	if checker != nil {
		options = append(options, rmq.WithTransactionChecker(&rmq.TransactionChecker{Check: checker.check}))
	}
	producer, err := rmq.NewProducer(config(""), options...)
	if err != nil {
		return nil, err
	}
	return producer, producer.Start()
}

func message(topic, text string) *rmq.Message {
	made := &rmq.Message{Topic: topic, Body: []byte(text)}
	made.SetTag("a")
	made.SetKeys("key-" + text)
	made.AddProperty("shop", "north")
	return made
}

// send sends one message for each text, completed by `complete`, and returns the ids.
func send(topic string, complete func(*rmq.Message), texts ...string) ([]string, error) {
	producer, err := started(topic, nil)
	if err != nil {
		return nil, err
	}
	defer producer.GracefulStop()
	var ids []string
	for _, text := range texts {
		made := message(topic, text)
		complete(made)
		receipts, err := producer.Send(ctx, made)
		if err != nil {
			return nil, err
		}
		ids = append(ids, receipts[0].MessageID)
	}
	return ids, nil
}

func plain(*rmq.Message) {}

func consumer(topic, group string) (rmq.SimpleConsumer, error) {
	made, err := rmq.NewSimpleConsumer(config(group), rmq.WithSimpleAwaitDuration(await),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: rmq.SUB_ALL}))
	if err != nil {
		return nil, err
	}
	return made, made.Start()
}

// consumed receives and acknowledges messages until there are `count`.
func consumed(topic, group string, count int) ([]*rmq.MessageView, error) {
	from, err := consumer(topic, group)
	if err != nil {
		return nil, err
	}
	defer from.GracefulStop()
	return acknowledged(from, count)
}

func acknowledged(from rmq.SimpleConsumer, count int) ([]*rmq.MessageView, error) {
	var found []*rmq.MessageView
	for until := time.Now().Add(patience); len(found) < count && time.Now().Before(until); {
		some, err := from.Receive(ctx, 16, invisible)
		if err != nil && !strings.Contains(err.Error(), "MESSAGE_NOT_FOUND") {
			return nil, err
		}
		for _, each := range some {
			found = append(found, each)
			if err := from.Ack(ctx, each); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

func texts(messages []*rmq.MessageView) []string {
	var found []string
	for _, each := range messages {
		found = append(found, string(each.GetBody()))
	}
	return found
}

func numbers(count int) []string {
	var made []string
	for i := range count {
		made = append(made, fmt.Sprint(i))
	}
	return made
}

func sorted(texts []string) []string {
	slices.Sort(texts)
	return texts
}

func equal(found, expected any) error {
	if !reflect.DeepEqual(found, expected) {
		return fmt.Errorf("found %v, expected %v", found, expected)
	}
	return nil
}

func sendAndConsume() error {
	sent, err := send("go-normal", plain, numbers(20)...)
	if err != nil {
		return err
	}
	found, err := consumed("go-normal", "go-readers", 20)
	if err != nil {
		return err
	}
	var ids []string
	for _, each := range found {
		ids = append(ids, each.GetMessageId())
		shown := []any{*each.GetTag(), each.GetKeys(), each.GetProperties()["shop"], each.GetDeliveryAttempt()}
		if err := equal(shown, []any{"a", []string{"key-" + string(each.GetBody())}, "north", int32(1)}); err != nil {
			return err
		}
	}
	return equal(sorted(ids), sorted(sent))
}

func invisibleTime() error {
	from, err := consumer("go-normal", "go-again")
	if err != nil {
		return err
	}
	defer from.GracefulStop()
	if _, err := acknowledged(from, 20); err != nil { // of the scenario before
		return err
	}
	if _, err := send("go-normal", plain, "again"); err != nil {
		return err
	}
	first, err := from.Receive(ctx, 16, invisible)
	if err != nil {
		return err
	}
	if err := equal(texts(first), []string{"again"}); err != nil {
		return err
	}
	if err := from.ChangeInvisibleDuration(first[0], time.Second); err != nil {
		return err
	}
	second, err := acknowledged(from, 1)
	if err != nil {
		return err
	}
	return equal([]any{texts(second), second[0].GetDeliveryAttempt()}, []any{[]string{"again"}, int32(2)})
}

func messageGroups() error {
	sent := numbers(10)
	if _, err := send("go-fifo", func(made *rmq.Message) { made.SetMessageGroup("g") }, sent...); err != nil {
		return err
	}
	found, err := consumed("go-fifo", "go-in-order", 10)
	if err != nil {
		return err
	}
	return equal(texts(found), sent)
}

func delay() error {
	due := time.Now().Add(2 * time.Second)
	if _, err := send("go-delay", func(made *rmq.Message) { made.SetDelayTimestamp(due) }, "delayed"); err != nil {
		return err
	}
	found, err := consumed("go-delay", "go-patient", 1)
	if err != nil {
		return err
	}
	return equal([]any{texts(found), time.Now().Before(due.Truncate(time.Millisecond))}, []any{[]string{"delayed"}, false})
}

func wrongType() error {
	_, err := send("go-delay", plain, "normal")
	if err == nil || !strings.Contains(err.Error(), "type") {
		return fmt.Errorf("a normal message to a topic of type DELAY: %v", err)
	}
	return nil
}

func push() error {
	if _, err := send("go-pushed", plain, numbers(5)...); err != nil {
		return err
	}
	var lock sync.Mutex
	seen := map[string]int{}
	listen := func(message *rmq.MessageView) rmq.ConsumerResult {
		lock.Lock()
		defer lock.Unlock()
		text := string(message.GetBody())
		seen[text]++
		if text == "0" && seen[text] == 1 {
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	}
	from, err := rmq.NewPushConsumer(config("go-pushers"), rmq.WithPushAwaitDuration(await),
		rmq.WithPushSubscriptionExpressions(map[string]*rmq.FilterExpression{"go-pushed": rmq.SUB_ALL}),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: listen}),
		rmq.WithPushConsumptionThreadCount(2), rmq.WithPushMaxCacheMessageCount(16))
	if err != nil {
		return err
	}
	if err := from.Start(); err != nil {
		return err
	}
	expected := map[string]int{"0": 2, "1": 1, "2": 1, "3": 1, "4": 1}
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		lock.Lock()
		done := reflect.DeepEqual(seen, expected)
		lock.Unlock()
		if done {
			return nil // stopping the consumer takes the client half a minute
		}
	}
	lock.Lock()
	defer lock.Unlock()
	return equal(seen, expected)
}

func transact(producer rmq.Producer, topic, text string) error {
	transaction := producer.BeginTransaction()
	if _, err := producer.SendWithTransaction(ctx, message(topic, text), transaction); err != nil {
		return err
	}
	switch strings.Fields(text)[0] {
	case "at":
		return transaction.Commit()
	case "not":
		return transaction.RollBack()
	}
	return nil
}

func transactions() error {
	var checker decider
	producer, err := started("go-tx", &checker)
	if err != nil {
		return err
	}
	defer producer.GracefulStop()
	for _, text := range []string{"at once", "not at all", "commit", "rollback", "later", "unknown"} {
		if err := transact(producer, "go-tx", text); err != nil {
			return err
		}
	}
	found, err := consumed("go-tx", "go-deciders", 3)
	if err != nil {
		return err
	}
	checker.lock.Lock()
	defer checker.lock.Unlock()
	delete(checker.checks, "unknown") // asked again and again
	return equal(
		[]any{sorted(texts(found)), checker.checks},
		[]any{[]string{"at once", "commit", "later"}, map[string]int{"commit": 1, "rollback": 1, "later": 2}})
}

// Before and after a kill of the broker.

func workBeforeAKill() (err error) {
	if survivor, err = started("go-survivors", &survivors); err != nil {
		return err
	}
	for _, number := range numbers(5) {
		for _, text := range []string{"at once ", "not at all ", "commit by check "} {
			if err := transact(survivor, "go-survivors", text+number); err != nil {
				return err
			}
		}
	}
	return nil
}

func goOnAfterAKill() error {
	until := time.Now().Add(patience)
	for {
		err := transact(survivor, "go-survivors", "at once after")
		if err == nil {
			break
		}
		if time.Now().After(until) {
			return fmt.Errorf("no send succeeds: %w", err)
		}
	}
	// The client opens its telemetry stream again only with its next settings, after five minutes. So another producer of
	// the topic is asked about the undecided transactions.
	another, err := started("go-survivors", &survivors)
	if err != nil {
		return err
	}
	defer another.GracefulStop()
	expected := []string{"at once after"}
	for _, number := range numbers(5) {
		expected = append(expected, "at once "+number, "commit by check "+number)
	}
	found, err := consumed("go-survivors", "go-survivors", len(expected))
	if err != nil {
		return err
	}
	return equal(sorted(texts(found)), sorted(expected))
}
