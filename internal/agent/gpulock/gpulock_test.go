package gpulock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/process"
)

// closing answers nobody, as a holder that is stuck.
func closing(l *net.UnixListener) {
	for {
		if _, err := l.Accept(); err != nil {
			return
		}
	}
}

func names(t *testing.T) (Kind, string) {
	t.Helper()
	unique := filepath.Base(t.TempDir()) + time.Now().Format("150405.000000000")
	return Kind("@divvy/test/" + t.Name() + unique + "/"), "GPU-1"
}

func TestOneHolder(t *testing.T) {
	kind, uuid := names(t)
	one, two := &Set{Kind: kind, Serve: closing}, &Set{Kind: kind, Serve: closing}
	defer one.Close()
	defer two.Close()
	for range 2 {
		if err := one.Take(t.Context(), uuid); err != nil || !one.Has(uuid) {
			t.Fatal(err)
		}
	}
	var held *HeldError
	if err := two.Take(t.Context(), uuid); !errors.As(err, &held) || held.Holder.PID != os.Getpid() || held.Holder.UID != os.Getuid() || two.Has(uuid) {
		t.Errorf("%v, want who holds it", err)
	}
	if err := two.Take(t.Context(), "GPU-2"); err != nil {
		t.Errorf("another GPU: %v", err)
	}
	all, err := kind.All(t.Context())
	if want := []string{uuid, "GPU-2"}; err != nil || len(all) != 2 || all[0].UUID != want[0] || all[1].UUID != want[1] {
		t.Errorf("held are %v, %v", all, err)
	}
	one.Give(uuid)
	one.Give(uuid)
	if _, ok := kind.Of(t.Context(), uuid); ok {
		t.Error("nobody holds it any more")
	}
	if err := two.Take(t.Context(), uuid); err != nil {
		t.Error(err)
	}
	two.Close()
	if all, err := kind.All(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("after the end %v, %v are held", all, err)
	}
}

// A holder that takes no connection is found by its files.
func TestSilentHolder(t *testing.T) {
	kind, uuid := names(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: kind.Address(uuid)}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if h, ok := kind.Of(t.Context(), uuid); !ok || h.PID != os.Getpid() || h.UID != os.Getuid() {
			t.Errorf("found %+v, %v", h, ok)
		}
	}
}

// All holders are asked at once: none is waited for before another is asked.
func TestHoldersAreAskedAtOnce(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root's holders are asked what they are")
	}
	kind, _ := names(t)
	const many = 8
	var met sync.WaitGroup
	met.Add(many)
	server := control.Server{Log: slog.New(slog.DiscardHandler), Connections: func(int) {}, Handlers: map[control.Method]control.Handler{
		control.MethodHello: func(_ context.Context, _ *control.Peer, _ json.RawMessage) (any, error) {
			met.Done()
			met.Wait() // nobody answers before all are asked
			return control.Info{Protocol: control.ProtocolVersion}, nil
		},
	}}
	set := &Set{Kind: kind, Serve: func(l *net.UnixListener) { _ = server.Serve(t.Context(), l) }}
	defer set.Close()
	for i := range many {
		if err := set.Take(t.Context(), fmt.Sprintf("GPU-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	all, err := kind.all(t.Context(), time.Minute)
	if answered := slices.DeleteFunc(all, func(h Holder) bool { return !h.System }); err != nil || len(answered) != many {
		t.Errorf("%v, %d of %d answer: %+v", err, len(answered), many, all)
	}
}

// The sign of a share outlives its agent, in the program that the process becomes.
func TestSign(t *testing.T) {
	kind, uuid := names(t)
	if os.Getenv("GPULOCK_TEST_SIGN") != "" {
		kind = Kind(os.Getenv("GPULOCK_TEST_SIGN"))
		if err := kind.Sign(uuid, "t1"); err != nil {
			t.Fatal(err)
		}
		t.Fatal(syscall.Exec("/bin/cat", []string{"cat"}, nil))
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSign$")
	cmd.Env = append(os.Environ(), "GPULOCK_TEST_SIGN="+string(kind))
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := input.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := output.Read(make([]byte, 1)); err != nil { // it is cat by now
		t.Fatal(err)
	}
	h, ok := kind.LeftBy(uuid, os.Getuid()+1, nil)
	if !ok || !h.Left || h.UID != os.Getuid() {
		t.Errorf("found %+v, %v", h, ok)
	}
	for tenant, want := range map[string]bool{"t1": true, "t2": false} {
		if _, ok := kind.LeftBy(uuid, -1, func(t string) bool { return t == tenant }); ok != want {
			t.Errorf("a sign of %s is found: %v", tenant, ok)
		}
	}
	if _, ok := kind.LeftBy(uuid, os.Getuid(), nil); ok {
		t.Error("the user's own shares keep them away")
	}
	if all, err := kind.All(t.Context()); err != nil || len(all) != 1 || !all[0].Left {
		t.Errorf("held are %+v, %v", all, err)
	}
	input.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, ok := kind.LeftBy(uuid, -1, nil); ok {
		t.Error("the sign outlives the share")
	}
}

// Each reader is advised what that reader can do.
func TestRemedies(t *testing.T) {
	h := Holder{UUID: "GPU-1", UID: 1001, PID: 7, User: "u1"}
	for reader, says := range map[int]string{0: "start the agent for all users", 1001: "the run directory of that agent", 1002: "ask an administrator"} {
		if got := h.Remedy(reader); !strings.Contains(got, says) {
			t.Errorf("user %d is told %q", reader, got)
		}
	}
	text := (&HeldError{h}).Error()
	for _, part := range []string{"GPU-1", "user u1", "process 7"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q does not name %s", text, part)
		}
	}
	texts := []string{Holder{UID: -1}.String(), Holder{UID: os.Getuid(), User: process.UserName(os.Getuid())}.String()}
	for reader := range 2 {
		elsewhere := Holder{UUID: "GPU-1", System: true, User: "root"} // as one of another pid namespace is
		texts = append(texts, (&HeldError{elsewhere}).Error(), elsewhere.Remedy(reader))
	}
	if slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, "process 0") }) {
		t.Errorf("%q", texts)
	}
}
