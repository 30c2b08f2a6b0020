package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/vm/kit"
	"github.com/divvy-gpu/divvy/test/vm/machine"
	"github.com/divvy-gpu/divvy/test/vm/wire"
)

// act is the argument by which this program does something in a guest, and tests nothing.
const act = "-act="

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], act) {
		os.Exit(acted(strings.TrimPrefix(os.Args[1], act)))
	}
	os.Exit(m.Run())
}

func acted(what string) int {
	words, err := os.ReadFile("/proc/cmdline")
	if err != nil || !strings.Contains(string(words), machine.Token) {
		return 99
	}
	switch what {
	case "fail":
		fmt.Fprintln(os.Stderr, "a word of a test")
		return 3
	case "panic":
		fmt.Fprintln(os.Stderr, os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0))
	case "hang":
		fmt.Println("it hangs")
		<-time.After(24 * time.Hour)
	}
	return 0
}

func TestLimit(t *testing.T) {
	for argument, want := range map[string]time.Duration{
		"-test.timeout=90s": 90 * time.Second, "-test.timeout=0": unbounded, "-test.v=true": unbounded,
	} {
		if got := limit([]string{"-test.paniconexit0", argument}); got != want {
			t.Errorf("%s: %v, want %v", argument, got, want)
		}
	}
}

func TestArguments(t *testing.T) {
	o, err := parsed([]string{"-shape", "iommu-off", "-append", "quiet", "-with", "build/bin", "/tmp/x.test", "-test.v=true"})
	if err != nil {
		t.Fatal(err)
	}
	if !o.shape.Off || o.shape.Append != "quiet" || o.tests != "/tmp/x.test" || len(o.arguments) != 1 || len(o.with) != 1 {
		t.Errorf("it is understood as %+v", o)
	}
	for _, wrong := range [][]string{nil, {"-shape", "none", "/tmp/x.test"}} {
		if _, err := parsed(wrong); err == nil {
			t.Errorf("%v is taken", wrong)
		}
	}
}

// A guest that ends before its result has failed, whatever it said before.
func TestFollow(t *testing.T) {
	var line, output, faults bytes.Buffer
	for kind, text := range map[wire.Kind]string{wire.Ready: "", wire.Output: "out", wire.Faults: "err "} {
		if err := wire.Write(&line, kind, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	whole := bytes.NewBuffer(bytes.Clone(line.Bytes()))
	if err := wire.Write(whole, wire.Result, []byte{2}); err != nil {
		t.Fatal(err)
	}
	began := 0
	ready := func() { began++ }
	if h := follow(&line, &output, &faults, ready); !errors.Is(h.err, errSilent) || h.ready.IsZero() {
		t.Errorf("without a result: %+v, want an error", h)
	}
	if h := follow(whole, &output, &faults, ready); h.err != nil || h.status != 2 || output.String() != "outout" || faults.String() != "err err " {
		t.Errorf("with a result: %+v, output %q and %q", h, output.String(), faults.String())
	}
	if began != 2 {
		t.Errorf("two guests were ready %d times", began)
	}
}

// A guest that did not boot boots again, and one whose tests had begun does not.
func TestAgain(t *testing.T) {
	for name, test := range map[string]struct {
		ends []error
		want error
	}{
		"at once":      {[]error{nil}, nil},
		"later":        {[]error{errBooting, errBooting, nil}, nil},
		"never":        {[]error{errBooting, errBooting, errBooting, nil}, errBooting},
		"in its tests": {[]error{errSilent, nil}, errSilent},
		"between":      {[]error{errBooting, errSilent, nil}, errSilent},
	} {
		count := 0
		status, err := again(t.Context(), func() (int, error) {
			count++
			return count, test.ends[count-1]
		})
		if !errors.Is(err, test.want) || status != count || err == nil && count != len(test.ends) {
			t.Errorf("%s: %d, %v after %d boots", name, status, err, count)
		}
	}
	stopped, stop := context.WithCancel(t.Context())
	count := 0
	_, err := again(stopped, func() (int, error) {
		count++
		stop()
		return 0, errBooting
	})
	if count != 1 || err == nil {
		t.Errorf("stopped: %v after %d boots", err, count)
	}
}

// A guest boots only for tests that there are.
func TestNames(t *testing.T) {
	for pattern, want := range map[string]string{"": "TestNames", "^TestNames$/deeper": "TestNames", "^TestNone$": ""} {
		o := options{tests: os.Args[0], arguments: []string{"-test.v=true"}}
		if pattern != "" {
			o.arguments = append(o.arguments, "-test.run="+pattern)
		}
		names, err := o.names(t.Context())
		if err != nil || slices.Contains(names, "TestNames") != (want != "") || pattern != "" && len(names) > 1 {
			t.Errorf("%q: %v, %v", pattern, names, err)
		}
	}
}

func TestWithoutAKit(t *testing.T) {
	t.Setenv("DIVVY_REQUIRE", "drivers,vm")
	if status := without([]string{"TestA"}, kit.ErrMissing); status != 1 {
		t.Errorf("where vm is promised the status is %d, want 1", status)
	}
	t.Setenv("DIVVY_REQUIRE", "drivers")
	if status := without([]string{"TestA"}, kit.ErrMissing); status != 0 {
		t.Errorf("the status is %d, want 0", status)
	}
}

// guests boots nothing but where `make test-vm` asks for it.
func guests(t *testing.T) (kit.Kit, place) {
	t.Helper()
	if os.Getenv("DIVVY_VM") == "" {
		t.Skip("it boots guests: run make test-vm")
	}
	p, err := find()
	if err != nil {
		t.Fatal(err)
	}
	k, err := kit.Open(filepath.Join(p.root, ".cache/vm-kit"))
	if err != nil {
		installtest.Missing(t, "vm", err)
	}
	return k, p
}

func TestGuestsEnd(t *testing.T) {
	k, p := guests(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := func(ctx context.Context, what string, limit time.Duration) (int, error) {
		return boot(ctx, k, p, options{tests: self, arguments: []string{act + what}, limit: limit})
	}
	t.Run("failing", func(t *testing.T) {
		if status, err := run(t.Context(), "fail", time.Minute); err != nil || status != 3 {
			t.Errorf("the status is %d, %v; want 3", status, err)
		}
	})
	t.Run("panicking", func(t *testing.T) {
		_, err := run(t.Context(), "panic", time.Minute)
		if !errors.Is(err, errSilent) || !strings.Contains(err.Error(), "Kernel panic - not syncing") {
			t.Errorf("%v, want what the kernel said", err)
		}
	})
	t.Run("hanging", func(t *testing.T) {
		_, err := run(t.Context(), "hang", 5*time.Second)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want that it is ended", err)
		}
	})
}
