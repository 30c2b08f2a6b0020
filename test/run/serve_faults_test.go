package run

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// neighbour is a share of another client, which must not notice anything.
func (s *server) neighbour(c *host) (unharmed func()) {
	s.t.Helper()
	p := c.stepsOf([]string{"--remote", s.name, "--memory", "2Gi", "--name", "neighbour"})
	p.want("alloc", p.do("1048576"), "0")
	return func() {
		s.t.Helper()
		p.want("a neighbour's alloc", p.do("1048576"), "0")
		p.end()
		if p.said.Len() > 0 {
			s.t.Errorf("a neighbour said %q", p.said.String())
		}
		s.gone()
	}
}

// Whatever breaks in the midst of a copy, the program hears of it or is gone, nothing is left of it, and a neighbour goes on.
func TestServeBreaksInMidCopy(t *testing.T) {
	const amount = 3 << 20 // of the bytes of one direction, when it breaks
	for name, test := range map[string]struct {
		answers bool
		broken  func(*testing.T, *way, *server, *host)
	}{
		"connections closed, to the GPU":   {false, func(_ *testing.T, w *way, _ *server, _ *host) { w.cut() }},
		"connections closed, from the GPU": {true, func(_ *testing.T, w *way, _ *server, _ *host) { w.cut() }},
		"the program killed":               {false, func(t *testing.T, _ *way, _ *server, c *host) { killCopies(t, c) }},
		"the program killed as it reads":   {true, func(t *testing.T, _ *way, _ *server, c *host) { killCopies(t, c) }},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := one(t)
			unharmed := s.neighbour(c)
			w := newWay(t, s, amount, test.answers, func(w *way) { test.broken(t, w, s, c) })
			o := c.runOn(w.name, "--memory", "2Gi", "--", s.bench(), "copy", "--bytes", "256Mi")
			killed := o.status == 128+int(syscall.SIGKILL)
			if heard := strings.Contains(o.out, "CUDA_ERROR_DEVICE_UNAVAILABLE") && strings.Contains(o.err, "divvy: "); killed == heard || killed != strings.Contains(name, "killed") {
				t.Errorf("%+v", o)
			}
			s.eventually("the share is gone", func() bool { return len(s.list().Tenants) == 1 })
			unharmed()
		})
	}
}

// killCopies kills the programs of a client that copy.
func killCopies(t *testing.T, c *host) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Error(err)
	}
	for _, path := range found {
		environment, _ := os.ReadFile(path)
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		var pid int
		if _, err := fmt.Sscanf(path, "/proc/%d/", &pid); err == nil && strings.Contains(string(environment), "DIVVY_RUNDIR="+c.rundir+"\x00") && strings.HasPrefix(string(line), filepath.Join(string(c.tree), "bin", "gpubench")+"\x00copy") {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
	}
}

// A worker that is killed after any number of bytes that its client sent is one dead worker: what was answered before was right,
// the program hears of the death, and nothing is left.
func TestServeWorkerKilledAnywhere(t *testing.T) {
	s, c := one(t)
	unharmed := s.neighbour(c)
	deaths := 0
	for sent := 4000; sent < 24000; sent += 1500 {
		_, before := s.workers() // that of the program before may not have ended yet
		died := false
		w := newWay(t, s, sent, false, func(*way) {
			_, now := s.workers()
			for _, pid := range now {
				if !slices.Contains(before, pid) {
					died = syscall.Kill(pid, syscall.SIGKILL) == nil
				}
			}
		})
		o := c.runOn(w.name, "--memory", "2Gi", "--", s.bench(), "alloc", "--bytes", "1Mi", "--count", "64")
		w.close()
		// A worker that dies after the last answer is none that the program could hear of.
		whole := o.status == 0 && strings.Contains(o.out, `"allocations":64`)
		if died && !whole {
			deaths++
		}
		switch {
		case died && !whole && (o.status == 0 || !strings.Contains(o.out, "CUDA_ERROR_DEVICE_UNAVAILABLE") || strings.Count(o.err, "\n") > 0):
			t.Errorf("killed after %d bytes: %+v", sent, o)
		case !died && o.status != 0:
			t.Errorf("not killed within %d bytes: %+v", sent, o)
		}
	}
	if deaths < 3 {
		t.Errorf("%d workers were killed: that tries little", deaths)
	}
	s.eventually("the shares are gone", func() bool { return len(s.list().Tenants) == 1 })
	unharmed()
}

// Strangers who open a thousand connections, with nothing, half a handshake or something else, hurt no client, and leave nothing.
func TestServeStrangers(t *testing.T) {
	s, c := one(t)
	unharmed := s.neighbour(c)
	fds := s.descriptors()
	const many = 1000
	stranger := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
	var conns []net.Conn
	for i := range many {
		conn, err := stranger.DialContext(t.Context(), "tcp", s.name)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		_, _ = conn.Write([][]byte{nil, {22, 3, 1, 2, 0, 1, 0, 1}, []byte("GET / HTTP/1.1\r\n\r\n"), {22, 3, 1, 255, 255}}[i%4]) // it may be closed already
	}
	if o := c.runOn(s.name, "--memory", "1Gi", "--", s.bench(), "alloc", "--bytes", "1Mi"); o.status != 0 {
		t.Errorf("beside strangers: %+v", o)
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	s.eventually("the server has let go of strangers", func() bool { return s.descriptors() <= fds })
	unharmed()
}

// descriptors is how many the server has.
func (s *server) descriptors() int {
	s.t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	return len(entries)
}

// frame is a frame as it travels, with any size in its head.
func frame(kind wire.Kind, size uint32, content string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{byte(kind), 0, 0, 0}, size), content...)
}

func message(text string) []byte { return frame(wire.KindMessage, uint32(len(text)), text) }

// say sends bytes to the server as a client with a bundle, and nothing more if they are no whole message, and returns the answer.
func (s *server) say(c *host, bytes []byte) (answer string) {
	s.t.Helper()
	b, err := identity.ReadBundle(filepath.Join(c.bundles, "0.pem"))
	if err != nil {
		s.t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", s.name, b.Config("127.0.0.1"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(bytes); err != nil {
		s.t.Error(err)
	}
	if !strings.Contains(string(bytes), "purpose") {
		if err := conn.CloseWrite(); err != nil {
			s.t.Error(err)
		}
	}
	text, _ := io.ReadAll(conn) // it ends, with a refusal or without
	return string(text)
}

// A client with a bundle that says what makes no sense is refused or cut off, and the server and its other shares go on.
func TestServeFaultyClients(t *testing.T) {
	s, c := one(t)
	unharmed := s.neighbour(c)
	fds := s.descriptors()
	for name, bytes := range map[string][]byte{
		"nothing":               nil,
		"half a head":           {1, 0, 0},
		"a frame too long":      frame(wire.KindMessage, 1<<32-1, ""),
		"a frame cut short":     frame(wire.KindMessage, 100, `{"version"`),
		"data first":            frame(wire.KindData, 4, "abcd"),
		"another kind":          frame(200, 0, ""),
		"no JSON":               message("["),
		"an unknown field":      message(`{"purpose":"inventory","x":1}`),
		"another purpose":       message(`{"purpose":"rule"}`),
		"nobody's share":        message(`{"purpose":"link","share":"x"}`),
		"a share of nothing":    message(`{"purpose":"share"}`),
		"a share with no sense": message(`{"purpose":"share","take":{"request":{"gpus":-1,"cores":1000},"host":"","user":""}}`),
	} {
		answer := s.say(c, bytes)
		if asked := strings.Contains(string(bytes), "purpose"); asked && !strings.Contains(answer, `"refused"`) {
			t.Errorf("%s: answered %q", name, answer)
		}
	}
	s.eventually("the server has let go of them", func() bool { return s.descriptors() <= fds })
	unharmed()
}

// One byte beyond a bound is refused, with the bound and what was asked for, and takes nothing.
func TestServeBoundByOneByte(t *testing.T) {
	all := newServers(t, 1)
	s, c := all[0], newClient(t, all, "--memory", "4Gi")
	p := c.stepsOf([]string{"--remote", s.name, "--memory", "3Gi"})
	o := c.runOn(s.name, "--memory", fmt.Sprint(1<<30+1), "--", "true")
	if o.status != 125 || !strings.Contains(o.err, "1Gi more there, and asks for 1073741825") {
		t.Errorf("a byte more: %+v", o)
	}
	// The server judges by itself, whatever a client makes of the bounds that it is told.
	answer := s.say(c, message(`{"purpose":"share","take":{"request":{"memory":"1073741825"},"host":"x","user":"x"}}`))
	if !strings.Contains(answer, `"code":"bounds"`) || !strings.Contains(answer, "may have 4Gi of memory, and asks for 1073741825 while it has 3Gi") {
		t.Errorf("a byte more, past the client: %q", answer)
	}
	if o := c.runOn(s.name, "--memory", "1Gi", "--", "true"); o.status != 0 {
		t.Errorf("what is left: %+v", o)
	}
	p.want("alloc", p.do("1048576"), "0")
	p.end()
	s.gone()
}

// Of two servers one is gone: who uses the other notices nothing, and requests that name both go there.
func TestServeOneOfTwoIsGone(t *testing.T) {
	all := newServers(t, 2)
	c := newClient(t, all)
	unharmed := all[1].neighbour(c)
	all[0].stop()
	o := c.runOn(names(all...), "--memory", "1Gi", "--", all[1].bench(), "alloc", "--bytes", "1Mi")
	if o.status != 0 || !strings.Contains(o.err, all[0].name) {
		t.Errorf("%+v", o)
	}
	unharmed()
}
