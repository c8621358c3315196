// Tests of the order service, which is another process: a test orders over HTTP, is the
// bank, and lets the broker fail and time pass by the control endpoint.
package orders

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// bank charges customers, unless it is told to be out of order.
type bank struct {
	*httptest.Server
	mutex   sync.Mutex
	broken  int // answers that are errors before it works
	charged []string
}

func (b *bank) charge(answer http.ResponseWriter, request *http.Request) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	var order struct{ Number string }
	if json.NewDecoder(request.Body).Decode(&order) != nil || b.broken > 0 {
		b.broken--
		answer.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	b.charged = append(b.charged, order.Number)
}

func (b *bank) has(t *testing.T, numbers ...string) {
	t.Helper()
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if fmt.Sprint(b.charged) != fmt.Sprint(numbers) {
		t.Fatalf("the bank has charged for %v, not %v", b.charged, numbers)
	}
}

// shop is the order service as its customers see it.
type shop struct{ url string }

// openShop starts the service on a fresh broker, and waits until it answers.
func openShop(t *testing.T, broken int) (*shop, *bank) {
	t.Helper()
	fresh(t)
	ask(t, "POST", "/v1/seed", object{"topics": []string{"orders-placed", "orders-due"}}, nil)
	at := &bank{broken: broken}
	at.Server = httptest.NewServer(http.HandlerFunc(at.charge))
	t.Cleanup(at.Close)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	uvicorn := os.Getenv("UVICORN")
	if uvicorn == "" {
		uvicorn = "uvicorn"
	}
	command := append(strings.Fields(uvicorn), "--app-dir=../orders", "--factory", "app:from_environment",
		fmt.Sprintf("--port=%d", port), "--log-level=warning")
	service := exec.Command(command[0], command[1:]...)
	service.Env = append(os.Environ(), "NAMESRV_ADDR="+shared.Namesrv, "BANK_URL="+at.URL, "ORDERS_DATABASE=:memory:")
	service.Stderr = os.Stderr
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		service.Process.Signal(os.Interrupt)
		service.Wait()
	})
	open := &shop{fmt.Sprintf("http://127.0.0.1:%d/orders/", port)}
	eventually(t, "the service", 0, func() bool { return open.state("none") != "away" })
	return open, at
}

func (s *shop) place(t *testing.T, number string) {
	t.Helper()
	answer, err := http.Post(s.url+number, "application/json", strings.NewReader(`{"cents": 1999}`))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		t.Fatal(answer.Status)
	}
}

func (s *shop) state(number string) string {
	answer, err := http.Get(s.url + number)
	if err != nil {
		return "away"
	}
	defer answer.Body.Close()
	var order struct{ State string }
	if json.NewDecoder(answer.Body).Decode(&order) != nil {
		return "away"
	}
	return order.State
}

// eventually waits until something holds; the broker's clock goes on by so many seconds
// between two looks.
func eventually(t *testing.T, what string, seconds int, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
		if seconds > 0 {
			ask(t, "POST", "/v1/clock", object{"advance": seconds}, nil)
		}
	}
}

func TestAnOrderIsPaid(t *testing.T) {
	shop, bank := openShop(t, 0)
	shop.place(t, "42")
	eventually(t, "the payment", 0, func() bool { return shop.state("42") == "paid" })
	bank.has(t, "42")
}

func TestAPaymentIsTriedAgainWhileTheBankIsAway(t *testing.T) {
	shop, bank := openShop(t, 2)
	shop.place(t, "42")
	eventually(t, "the payment", 10, func() bool { return shop.state("42") == "paid" })
	bank.has(t, "42")
}

func TestAnOrderThatIsNotPaidIsCancelledAfterHalfAnHour(t *testing.T) {
	shop, bank := openShop(t, 1000)
	shop.place(t, "42")
	ask(t, "POST", "/v1/clock", object{"advance": 1790}, nil)
	if state := shop.state("42"); state != "placed" {
		t.Fatal(state)
	}
	eventually(t, "the cancellation", 1, func() bool { return shop.state("42") == "cancelled" })
	bank.has(t)
}

func TestAnOrderWhoseCommitIsLostIsPaidAllTheSame(t *testing.T) {
	shop, bank := openShop(t, 0)
	ask(t, "POST", "/v1/faults", object{"code": "end_transaction", "times": 1, "action": "drop_request"}, nil)
	shop.place(t, "42")
	eventually(t, "the payment", 10, func() bool { return shop.state("42") == "paid" })
	bank.has(t, "42")
}

func TestOrdersArePaidAfterACrashOfTheBroker(t *testing.T) {
	shop, bank := openShop(t, 0)
	shop.place(t, "41")
	eventually(t, "the first payment", 0, func() bool { return shop.state("41") == "paid" })
	ask(t, "POST", "/v1/broker/kill", nil, nil)
	ask(t, "POST", "/v1/broker/start", nil, nil)
	shop.place(t, "42")
	eventually(t, "the second payment", 0, func() bool { return shop.state("42") == "paid" })
	bank.has(t, "41", "42")
}
