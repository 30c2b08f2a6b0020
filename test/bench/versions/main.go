// Command versions runs the suite of mode slots on one version of Kubernetes and one of containerd, as root, and writes what became
// of each scenario into docs/measurements/versions. From all reports there it counts the versions that passed, for
// docs/measurements/slots.json. Both need what `make e2e-slots` builds before.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

func main() {
	var s suite
	flag.StringVar(&s.kubernetes, "kubernetes", "", "folder kubernetes-`VERSION` of Kubernetes' programs; empty to count the reports that are there")
	flag.StringVar(&s.containerd, "containerd", "", "`LINE` of containerd, such as 1.7; empty for the newest")
	flag.StringVar(&s.only, "only", "", "run only the tests of this `PATTERN`, and write nothing")
	flag.StringVar(&s.part, "part", "", "run only the tests of this `PATTERN`, and write a report that says so and does not count")
	flag.BoolVar(&s.short, "short", false, "with -only, leave out the scenarios that take minutes")
	out := flag.String("out", "docs/measurements", "`FOLDER` of the measurements")
	flag.Parse()
	if err := s.run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "versions:", err)
		os.Exit(1)
	}
}

// whole are the tests of which a version passes all to count. Its upgrade is skipped where the next version has no claims. What is
// counted under the names of NVIDIA's device plugin has no part in the scheduler, and a target of its own.
const whole = "^TestSlots(Upgrade)?$"

// suite is what is run.
type suite struct {
	kubernetes, containerd, only, part string
	short                              bool
}

func (s *suite) run(out string) error {
	if s.kubernetes == "" {
		return count(out)
	}
	if s.short && s.only == "" {
		return errors.New("a report has all scenarios: -short needs -only")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report := Report{
		Kubernetes: strings.TrimPrefix(filepath.Base(s.kubernetes), "kubernetes-"), Command: s.command(), Part: s.part,
		Machine: measurement.Machine(), Date: time.Now().UTC().Format(time.DateOnly), Commit: measurement.Commit(),
	}
	var err error
	if report.Containerd, err = s.containerdVersion(ctx); err != nil {
		return err
	}
	pattern := cmp.Or(s.only, s.part, whole)
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-timeout=90m", fmt.Sprintf("-short=%t", s.short), "-run", pattern, "./test/e2e")
	// The suite ends its cluster itself when it is interrupted.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), "DIVVY_E2E=slots", "DIVVY_E2E_KUBERNETES="+report.Kubernetes, "DIVVY_E2E_CONTAINERD="+s.containerd)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run the suite: %w", err)
	}
	report.Scenarios, err = scenarios(events, os.Stdout)
	failed := cmd.Wait()
	if err != nil || s.only != "" {
		return firstOf(err, failed)
	}
	if err := report.write(filepath.Join(out, "versions")); err != nil {
		return err
	}
	if err := count(out); err != nil {
		return err
	}
	return firstOf(failed, report.fault())
}

// command is how the run is repeated.
func (s *suite) command() string {
	text := "make e2e-slots VERSION=" + minor(strings.TrimPrefix(filepath.Base(s.kubernetes), "kubernetes-"))
	if s.containerd != "" {
		text += " CONTAINERD=" + s.containerd
	}
	if s.part != "" {
		text = "PART='" + s.part + "' " + text
	}
	return text
}

// containerdVersion asks the program.
func (s *suite) containerdVersion(ctx context.Context) (string, error) {
	program := filepath.Join(filepath.Dir(s.kubernetes), "containerd"+strings.ReplaceAll(s.containerd, ".", ""), "containerd")
	text, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask containerd for its version: %w", err)
	}
	fields := strings.Fields(string(text))
	if len(fields) < 3 {
		return "", fmt.Errorf("ask containerd for its version: it says %q", text)
	}
	return fields[2], nil
}

func firstOf(faults ...error) error {
	for _, err := range faults {
		if err != nil {
			return err
		}
	}
	return nil
}
