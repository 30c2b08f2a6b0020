package cli

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// Agents that do not answer are waited for at once: these end their connections when all
// have been asked.
func TestAgentsAreAskedAtOnce(t *testing.T) {
	dir, err := os.MkdirTemp("", "divvy")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	const agents = 3
	var asked, ended sync.WaitGroup
	asked.Add(agents)
	endpoints := map[string]control.Endpoint{}
	for i := range agents {
		name := fmt.Sprint("m", i)
		e := control.Endpoint{Rundir: dir, Simgpu: filepath.Join(dir, name)}
		if err := os.MkdirAll(filepath.Dir(e.Socket()), 0o700); err != nil {
			t.Fatal(err)
		}
		var listen net.ListenConfig
		listener, err := listen.Listen(t.Context(), "unix", e.Socket())
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		ended.Go(func() {
			conn, err := listener.Accept()
			asked.Done()
			asked.Wait()
			if errors.Join(err, conn.Close()) != nil {
				t.Error("nobody asked")
			}
		})
		endpoints[name] = e
	}
	for i, s := range (&app{rundir: dir}).lookAtAgents(t.Context(), endpoints) {
		if s.machine != fmt.Sprint("m", i) || s.err == nil || strings.Contains(s.err.Error(), "does not answer") {
			t.Errorf("%d: %s: %v", i, s.machine, s.err)
		}
	}
	ended.Wait()
}

// However many there are, a bounded number is asked at once.
func TestAskedAtOnceIsBounded(t *testing.T) {
	names := make([]string, 3*mostAtOnce)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	var mu sync.Mutex
	now, most := 0, 0
	full := make(chan struct{})
	answers := atOnce(names, func(name string) string {
		mu.Lock()
		if now++; now > most {
			if most = now; most == mostAtOnce {
				close(full)
			}
		}
		mu.Unlock()
		<-full
		mu.Lock()
		defer mu.Unlock()
		now--
		return name
	})
	if most != mostAtOnce || strings.Join(answers, " ") != strings.Join(names, " ") {
		t.Errorf("%d at once, %v", most, answers)
	}
}
