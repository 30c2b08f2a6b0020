package run

import (
	"strings"
	"syscall"
	"testing"
)

// A share tells at its end what it used and was refused, and before, in sentences, to who
// asks inside it. The command ends as it would without.
func TestSummaryAndShow(t *testing.T) {
	h := newHost(t)
	bench := h.bench()
	refused := bench + " alloc --bytes 2Gi >/dev/null 2>&1; " + bench + " alloc --bytes 3Gi >/dev/null 2>&1; "
	o := h.run("--summary", "--name", "small", "--memory", "1Gi", "--cores", "30", "--", "sh", "-c",
		refused+bench+" spin --count 50 --ns 5000000 >/dev/null; divvy() { "+string(h.tree)+"/bin/divvy \"$@\"; }; divvy show; exit 7")
	if o.status != 7 {
		t.Errorf("exit status %d, %s", o.status, o.err)
	}
	for _, want := range []string{
		"small is a share of ", "it was granted 1Gi of its memory and 30% of its time, no more",
		"2 allocations were refused: the largest of 3Gi, the last of 3Gi", "by the limit of the share",
		"`divvy set small --memory ", "It was held back for ", "Its own limit of 30% held it back",
	} {
		if !strings.Contains(o.out, want) {
			t.Errorf("%q is not in\n%s", want, o.out)
		}
	}
	for _, want := range []string{"divvy: small ended after ", "Peak memory: ", "GPU time: ", "Held back: ", "2 allocations were refused"} {
		if !strings.Contains(o.err, want) {
			t.Errorf("%q is not in\n%s", want, o.err)
		}
	}
	for _, test := range []struct {
		command []string
		status  int
	}{
		{[]string{"true"}, 0}, {[]string{"sh", "-c", "kill -TERM $$"}, 128 + 15}, {[]string{"no-such-program"}, 127},
	} {
		o := h.run(append([]string{"--summary", "--"}, test.command...)...)
		if begun := test.status != 127; o.status != test.status || strings.Contains(o.err, "ended after") != begun {
			t.Errorf("%q: exit status %d, %q", test.command, o.status, o.err)
		}
	}
}

// A summary has all that a short command did on a GPU that it had for itself, of the command alone, and who ended it.
func TestSummaryIsWhole(t *testing.T) {
	h := newHost(t)
	for try := 1; ; try++ { // a program that is kept from its processor may end before its last kernels are measured
		o := h.run("--summary", "--name", "short", "--memory", "1Gi", "--", h.bench(), "spin", "--count", "400", "--ns", "1000000")
		if strings.Contains(o.err, "GPU time: 39") || strings.Contains(o.err, "GPU time: 40") {
			break
		}
		if t.Logf("400 ms are told as %s", o.err); try == 5 {
			t.Fatal("in none of five tries they are told within 2 percent")
		}
	}
	s := h.hold([]string{"--summary", "--memory", "1Gi", "--name", "endless"}, h.bench(), "load", "--seconds", "3600")
	h.ok("stop", "--simgpu", "m", "endless")
	s.end()
	if said := s.said.String(); !strings.Contains(said, " stopped it (divvy stop). Peak memory") || strings.Contains(said, "goes on") {
		t.Errorf("a share that was stopped is told as %s", said)
	}
}

// What ends a program reaches the command of a share that is summed up.
func TestSignalsReachTheCommandOfASummary(t *testing.T) {
	h := newHost(t)
	s := h.hold([]string{"--summary", "--memory", "1Gi"}, "sh", "-c", `sleep 600 & trap 'kill $!; exit 9' TERM; echo ready; wait`)
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.end()
	if status := s.cmd.ProcessState.ExitCode(); status != 9 {
		t.Errorf("after SIGTERM: exit status %d", status)
	}
}
