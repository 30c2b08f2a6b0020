package mps

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/process"
)

// scripted is a daemon whose program is a script.
func scripted(t *testing.T, script string) Daemon {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, ControlProgram)
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return Daemon{UUID: "GPU-0", Dirs: Dirs{Pipe: filepath.Join(dir, "p"), Log: filepath.Join(dir, "l")}, Program: program}
}

func TestAnswersThatAreNone(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		want   error
	}{
		"nonsense":      {"echo moo", ErrAnswer},
		"nothing":       {"true", ErrAnswer},
		"another value": {"echo 50.0", ErrAnswer},
		"endless":       {"yes 30.0", ErrAnswer},
		"absent":        {"echo '" + absent + "' >&2; exit 1", ErrAbsent},
		"unsent":        {"echo '" + unsent + "' >&2; exit 1", errUnsent},
		"unknown":       {`echo 'Unknown command "x"'`, ErrUnknownCommand},
	} {
		t.Run(name, func(t *testing.T) {
			limit := time.Minute // on a busy machine
			if name == "endless" {
				limit, c.want = time.Second, ErrSilent // it never ends
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			err := scripted(t, c.script).SetPercentage(ctx, 30)
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// A program that never answers is killed with what it started.
func TestSilence(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "pid")
	d := scripted(t, "sleep 1000 & echo $! >"+fifo+"; wait")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for ctx.Err() == nil {
			if text, err := os.ReadFile(fifo); err == nil && strings.HasSuffix(string(text), "\n") {
				return
			}
		}
	}()
	if _, err := d.Servers(ctx); !errors.Is(err, ErrSilent) {
		t.Errorf("%v, want %v", err, ErrSilent)
	}
	text, err := os.ReadFile(fifo)
	if err != nil {
		t.Fatal(err)
	}
	pids, err := parsePIDs(lines(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	id, err := process.Find(pids[0])
	if err != nil {
		return
	}
	ended, stop, err := id.Watch()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	<-ended // or the test takes for ever
}

// A daemon that closes the connection is asked once more, and never by two at a time.
func TestTurns(t *testing.T) {
	dir := t.TempDir()
	d := scripted(t, `mkdir `+dir+`/busy || { echo two at once >&2; exit 1; }
if mkdir `+dir+`/first 2>/dev/null; then rmdir `+dir+`/busy; echo '`+unsent+`' >&2; exit 1; fi
echo 30.0; rmdir `+dir+`/busy`)
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() {
			if err := d.SetPercentage(t.Context(), 30); err != nil {
				t.Error(err)
			}
		})
	}
	asking.Wait()
}

func TestCommandsAreOne(t *testing.T) {
	d := scripted(t, "cat")
	if answer, err := d.ask(t.Context(), "get_client_list %s", "1\nquit"); err == nil {
		t.Errorf("two commands were given at once: %q", answer)
	}
}

func TestPlace(t *testing.T) {
	dir := t.TempDir()
	good := DirsOf(dir, "GPU-0")
	for range 2 {
		if err := good.Make(); err != nil {
			t.Fatal(err)
		}
	}
	if err := good.Remove(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(pipe string) error{
		"link": func(pipe string) error { return os.Symlink(dir, pipe) },
		"file": func(pipe string) error { return os.WriteFile(pipe, nil, 0o600) },
		"open": func(pipe string) error { return errors.Join(os.Mkdir(pipe, 0o700), os.Chmod(pipe, 0o777)) },
		"of another user": func(pipe string) error {
			if os.Geteuid() != 0 {
				t.Log("not root: no directory of another user")
				return os.WriteFile(pipe, nil, 0o600)
			}
			return errors.Join(os.Mkdir(pipe, 0o700), os.Chown(pipe, 12345, 12345))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := DirsOf(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(p.Pipe), 0o700), spoil(p.Pipe)); err != nil {
				t.Fatal(err)
			}
			if err := p.Make(); !errors.Is(err, ErrDirectory) {
				t.Errorf("%v, want %v", err, ErrDirectory)
			}
		})
	}
	for _, pipe := range []string{"relative", filepath.Join(dir, strings.Repeat("x", longestSocket))} {
		if err := (Dirs{Pipe: pipe, Log: good.Log}).Make(); !errors.Is(err, ErrDirectory) {
			t.Errorf("%s: %v, want %v", pipe, err, ErrDirectory)
		}
	}
}

// A socket at which nobody listens any more is no daemon, and the kernel tells who listens.
func TestFind(t *testing.T) {
	d := scripted(t, "exit 1")
	if err := d.Dirs.Make(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(d.Dirs.Pipe, controlSocket)
	listening, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	listening.SetUnlinkOnClose(false)
	if id, err := d.Find(); err != nil || id.PID != os.Getpid() {
		t.Errorf("found %v, %v; it is %d", id, err, os.Getpid())
	}
	if err := listening.Close(); err != nil {
		t.Fatal(err)
	}
	if id, err := d.Find(); !errors.Is(err, ErrAbsent) {
		t.Errorf("found %v, %v where nobody listens", id, err)
	}
}
