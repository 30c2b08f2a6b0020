package plane

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// killedVariable has a copy of this test start a program and wait to be killed.
const killedVariable = "DIVVY_PLANE_KILLED"

func TestMain(m *testing.M) {
	if os.Getenv(killedVariable) != "" {
		if err := beKilled(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// empty is a plane that runs nothing yet.
func empty(dir string) *Plane {
	return &Plane{options: Options{Log: func(string, ...any) {}}, dir: dir, parent: newParent(), processes: map[string]*Process{}}
}

// shell is a program that is ready at once, if it lives.
func shell(script string) Program {
	return Program{
		Name: "script", Path: "/bin/sh", Ports: 1, Scheme: "http",
		Args:  func(ports []int) []string { return []string{"-c", script, "sh", strconv.Itoa(ports[0])} },
		Ready: func(context.Context, string) error { return nil },
	}
}

// written is a program that is ready once it has written a file.
func written(script, file string) Program {
	program := shell(script)
	program.Ready = func(context.Context, string) error { _, err := os.Stat(file); return err }
	return program
}

// A program that finds its port taken gets another one.
func TestRunOnAnotherPort(t *testing.T) {
	dir := t.TempDir()
	p := empty(dir)
	defer p.Stop() //nolint:errcheck // the folder is the test's
	script := `echo $1 >>tried; if [ $(wc -l <tried) = 1 ]; then echo "listen: address already in use"; exit 1; fi; touch ready; exec sleep 1000`
	process, err := p.Run(t.Context(), written(script, filepath.Join(dir, "ready")))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "tried"))
	if err != nil {
		t.Fatal(err)
	}
	if tried := strings.Fields(string(text)); len(tried) != 2 || tried[1] != strconv.Itoa(process.Port(0)) {
		t.Errorf("it tried ports %v and has %d", tried, process.Port(0))
	}
	if taken, err := process.Processor(); err != nil || taken < 0 {
		t.Errorf("it took %v: %v", taken, err)
	}
	if err := p.Alive(); err != nil {
		t.Error(err)
	}
}

// A program that ends is an error that tells what it said last, and it is not started again.
func TestRunOfAProgramThatEnds(t *testing.T) {
	dir := t.TempDir()
	p := empty(dir)
	defer p.Stop() //nolint:errcheck // the folder is the test's
	_, err := p.Run(t.Context(), written("echo >>tried; echo no such flag; exit 3", filepath.Join(dir, "ready")))
	var dead *deadError
	if !errors.As(err, &dead) || !strings.Contains(err.Error(), "no such flag") {
		t.Errorf("got %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "tried")); err != nil || len(text) != 1 {
		t.Errorf("it was started %d times: %v", len(text), err)
	}
}

func TestStopLeavesNothing(t *testing.T) {
	p := empty(filepath.Join(t.TempDir(), "plane"))
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	process, err := p.Run(t.Context(), shell("exec sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if running(process.cmd.Process.Pid) {
		t.Error("its process runs on")
	}
	if _, err := os.Stat(p.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its folder is there: %v", err)
	}
}

// A program that is forgotten has ended, and nobody minds.
func TestForget(t *testing.T) {
	p := empty(t.TempDir())
	defer p.Stop() //nolint:errcheck // the folder is the test's
	process, err := p.Run(t.Context(), shell("exec sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p.Forget("script")
	}
	if running(process.cmd.Process.Pid) || p.Process("script") != nil {
		t.Error("it runs on, or is known")
	}
	if err := p.Alive(); err != nil {
		t.Error(err)
	}
}

// What was started ends also when nobody could stop it.
func TestKilledLeavesNoProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), killedVariable+"="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	killed := cmd.Process.Kill()
	_ = cmd.Wait()
	if err := errors.Join(err, killed); err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for running(pid) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("process %d runs on", pid)
		}
	}
}

func beKilled() error {
	process, err := empty(os.Getenv(killedVariable)).Run(context.Background(), shell("exec sleep 1000"))
	if err != nil {
		return err
	}
	fmt.Println(process.cmd.Process.Pid)
	select {} // until the test kills it
}

// running reports whether there is a process that has not ended; one that nobody has reaped has no command line.
func running(pid int) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && len(text) > 0
}
