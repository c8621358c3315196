// Tests of an application in Go, with Apache's client for Go.
package orders

import (
	"context"
	"testing"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func send(t *testing.T, message *primitive.Message) *primitive.SendResult {
	t.Helper()
	rlog.SetLogLevel("error")
	shop, err := producer.NewDefaultProducer(
		producer.WithNameServer([]string{shared.Namesrv}),
		producer.WithGroupName("shop"),
		producer.WithRetry(2),
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := shop.Start(); err != nil {
		t.Fatal(err)
	}
	defer shop.Shutdown()
	result, err := shop.SendSync(context.Background(), message)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

type stored struct {
	Messages []struct {
		Body string   `json:"body"`
		Tags string   `json:"tags"`
		Keys []string `json:"keys"`
	} `json:"messages"`
}

func waitStored(t *testing.T, count int) stored {
	t.Helper()
	var found stored
	wait := object{"for": "stored", "topic": "orders", "count": count, "within": 20}
	ask(t, "POST", "/v1/wait", wait, &found)
	return found
}

func TestAnOrderIsStored(t *testing.T) {
	fresh(t)
	ask(t, "POST", "/v1/seed", object{"topics": object{"orders": 2}}, nil)
	message := primitive.NewMessage("orders", []byte("42 bananas"))
	message.WithTag("new").WithKeys([]string{"42"})
	send(t, message)
	order := waitStored(t, 1).Messages[0]
	if order.Body != "42 bananas" || order.Tags != "new" || order.Keys[0] != "42" {
		t.Fatalf("stored was %+v", order)
	}
}

func TestAnOrderIsSentAgainWhenTheConnectionBreaks(t *testing.T) {
	fresh(t)
	ask(t, "POST", "/v1/seed", object{"topics": object{"orders": 2}}, nil)
	var fault struct{ Id int }
	ask(t, "POST", "/v1/faults", object{"code": "send", "topic": "orders", "times": 1, "action": "close_connection"}, &fault)
	send(t, primitive.NewMessage("orders", []byte("42 bananas")))
	ask(t, "POST", "/v1/wait", object{"for": "hit", "fault": fault.Id}, nil)
	if found := waitStored(t, 1); len(found.Messages) != 1 {
		t.Fatalf("stored was %+v", found)
	}
}

func TestAReminderComesAfterAMinute(t *testing.T) {
	fresh(t)
	ask(t, "POST", "/v1/seed", object{"topics": object{"orders": 2}}, nil)
	reminder := primitive.NewMessage("orders", []byte("pay, please"))
	reminder.WithDelayTimeLevel(5) // one minute
	send(t, reminder)
	ask(t, "POST", "/v1/clock", object{"advance": 61}, nil)
	waitStored(t, 1)
}

func TestOrdersSurviveACrashOfTheBroker(t *testing.T) {
	fresh(t)
	ask(t, "POST", "/v1/seed", object{"topics": object{"orders": 2}}, nil)
	send(t, primitive.NewMessage("orders", []byte("1")))
	ask(t, "POST", "/v1/broker/kill", nil, nil)
	ask(t, "POST", "/v1/broker/start", nil, nil)
	waitStored(t, 1)
	send(t, primitive.NewMessage("orders", []byte("2")))
	waitStored(t, 2)
}
