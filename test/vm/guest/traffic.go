package guest

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// WaitFor waits until something holds, and fails the test where it does not for long.
func WaitFor(t testing.TB, what string, holds func() bool) {
	t.Helper()
	limit := time.After(90 * time.Second) // a guest without KVM on a busy machine
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-limit:
			t.Fatalf("it is not so that %s", what)
		case <-tick.C:
		}
	}
}

// End is one of two that send to each other: a namespace, of which "" is the first, an adapter, and an IPv4 address.
type End struct {
	Namespace, Adapter, Address string
}

// arguments are those of a program for this end, which has its address's GID.
func (e End) arguments(t testing.TB) []string {
	t.Helper()
	index := ""
	WaitFor(t, e.Adapter+" has the GID of "+e.Address, func() bool {
		var err error
		index, err = GID(e.Namespace, e.Adapter, e.Address)
		return err == nil
	})
	return In(e.Namespace, "ibv_rc_pingpong", "-n", "100", "-c", "-s", "16384", "-d", e.Adapter, "-g", index)
}

// Exchange has two ends send to each other. The receiver compares what it gets, and each tells both GIDs.
func Exchange(t testing.TB, server, client End) {
	t.Helper()
	arguments := server.arguments(t)
	listen := exec.Command(arguments[0], arguments[1:]...) //nolint:noctx // killed below
	var heard strings.Builder
	listen.Stdout, listen.Stderr = &heard, &heard
	if err := listen.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listen.Process.Kill() }()
	arguments = append(client.arguments(t), server.Address)
	var said []byte
	WaitFor(t, "the server listens and traffic reaches it", func() bool {
		var err error
		said, err = exec.Command(arguments[0], arguments[1:]...).CombinedOutput() //nolint:noctx // it ends in a moment
		return err == nil || !strings.Contains(string(said), "Couldn't connect")
	})
	if !strings.Contains(string(said), "100 iters") {
		_ = listen.Process.Kill() // it would wait for ever
	}
	if err := listen.Wait(); err != nil {
		t.Errorf("the server: %v", err)
	}
	for who, text := range map[string]string{"client": string(said), "server": heard.String()} {
		if !strings.Contains(text, "100 iters") || strings.Contains(text, "invalid data") {
			t.Errorf("the %s says:\n%s", who, text)
		}
		for _, address := range []string{server.Address, client.Address} {
			if !strings.Contains(text, "GID ::ffff:"+address+"\n") {
				t.Errorf("the %s does not use the GID of %s:\n%s", who, address, text)
			}
		}
	}
}
