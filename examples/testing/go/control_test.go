// The control endpoint of `rocketmq test-broker`, as tests in Go use it.
package orders

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// broker is where everything is, as the ready file says.
type broker struct {
	Namesrv string `json:"namesrv"`
	Control string `json:"control"`
}

var shared broker

// TestMain starts one broker for all tests; each test resets it.
func TestMain(m *testing.M) {
	directory, err := os.MkdirTemp("", "rocketmq")
	if err != nil {
		panic(err)
	}
	ready := filepath.Join(directory, "ready.json")
	command := strings.Fields(os.Getenv("ROCKETMQ_TEST_BROKER"))
	if len(command) == 0 {
		command = []string{"rocketmq", "test-broker"}
	}
	command = append(command, "--control=127.0.0.1:0", "--ready-file="+ready, "--virtual-clock")
	process := exec.Command(command[0], command[1:]...)
	process.Stderr = os.Stderr
	if err := process.Start(); err != nil {
		panic(err)
	}
	code := 1
	if waitFor(ready, &shared) {
		code = m.Run()
	}
	process.Process.Kill()
	process.Wait()
	os.RemoveAll(directory)
	os.Exit(code)
}

func waitFor(file string, into any) bool {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if text, err := os.ReadFile(file); err == nil {
			return json.Unmarshal(text, into) == nil
		}
	}
	return false
}

type object = map[string]any

// ask sends a request to the control endpoint and fails the test unless it is done.
func ask(t *testing.T, method, path string, body object, into any) {
	t.Helper()
	sent, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequest(method, shared.Control+path, bytes.NewReader(sent))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("content-type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		t.Fatal(fmt.Sprintf("%s %s: %s", method, path, text))
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
	}
}

// fresh makes the broker a new one, and checks at the end that each fault met something.
func fresh(t *testing.T) {
	t.Helper()
	ask(t, "POST", "/v1/broker/reset", nil, nil)
	t.Cleanup(func() { ask(t, "POST", "/v1/check", nil, nil) })
}
