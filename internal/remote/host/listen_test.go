package host

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A client that has its workers write many lines fills no log, and the last line is still known.
func TestListen(t *testing.T) {
	var logged bytes.Buffer
	s := &share{
		host:    &Host{options: Options{Log: slog.New(slog.NewTextHandler(&logged, nil))}},
		process: &exec.Cmd{Process: &os.Process{Pid: 1}},
		silent:  make(chan struct{}),
	}
	s.listen(t.Context(), "laptop", io.NopCloser(strings.NewReader(strings.Repeat("divvy-worker: a wrong hello\n", 5000)+"the last\n")))
	if n := strings.Count(logged.String(), "a wrong hello"); n == 0 || n > 1000 {
		t.Errorf("of 5000 lines the log has %d", n)
	}
	if !strings.Contains(logged.String(), "client=laptop") {
		t.Errorf("nothing says whose the lines are: %.200s", logged.String())
	}
	if s.said != "the last" {
		t.Errorf("it said %q last", s.said)
	}
	<-s.silent
}
