package binding

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
	"github.com/divvy-gpu/divvy/test/bench/figure"
	"github.com/divvy-gpu/divvy/test/vm/guest"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

// child is a process that says words, and reads.
type child struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// begun starts a child that says a word, and waits for it.
func begun(t *testing.T, cmd *exec.Cmd, word string) child {
	t.Helper()
	out, err := cmd.StdoutPipe()
	must(t, err)
	in, err := cmd.StdinPipe()
	must(t, err)
	cmd.Stderr = os.Stderr
	must(t, cmd.Start())
	t.Cleanup(func() { end(cmd) })
	c := child{cmd, in, bufio.NewReader(out)}
	c.says(t, word)
	return c
}

func (c child) says(t *testing.T, word string) {
	t.Helper()
	if line, err := c.out.ReadString('\n'); err != nil || strings.TrimSpace(line) != word {
		t.Fatalf("the child says %q, %v; want %s", line, err, word)
	}
}

func end(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// holder has a node open.
func holder(t *testing.T, node string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), holds+"="+node)
	begun(t, cmd, "held")
	return cmd
}

type ending struct {
	entry vfio.Entry
	there bool
	left  []vfio.Foreign
	err   error
}

func listener() (chan ending, func(vfio.Entry, bool, []vfio.Foreign, error)) {
	late := make(chan ending, 1)
	return late, func(e vfio.Entry, there bool, left []vfio.Foreign, err error) { late <- ending{e, there, left, err} }
}

func expectStuck(t *testing.T, err error, pid int) {
	t.Helper()
	var stuck *vfio.StuckError
	if !errors.As(err, &stuck) || !slices.ContainsFunc(stuck.Holders, func(h facts.Holder) bool { return h.PID == pid }) {
		t.Fatalf("%v, want that it is stuck by process %d", err, pid)
	}
}

// Whoever holds a GPU's node is named in time, others do not wait, and the plan goes on once the node is closed.
func TestHolderIsNamed(t *testing.T) {
	guest.Require(t)
	gpu, card := guest.Function(machine.Accelerator), guest.Function(machine.RootedCard)
	gpu.Bind(t, "nvidia")
	before := snapshot(t)
	late, told := listener()
	b := open(t, fileName(t), told)
	p, free := planned(t, gpu), planned(t, card)
	h := holder(t, guest.Nodes()[0])
	if _, err := plan(gpu); !errors.Is(err, binding.ErrHeld) {
		t.Errorf("a GPU that is held is planned for: %v", err)
	}
	asked := time.Now()
	err := b.Bind(t.Context(), "ada", p)
	named := time.Since(asked)
	expectStuck(t, err, h.Process.Pid)
	var others []float64
	ask := func(what func()) {
		asked := time.Now()
		what()
		others = append(others, time.Since(asked).Seconds())
	}
	for range 20 {
		ask(func() { b.Entries() })
		ask(func() { expectStuck(t, b.Bind(t.Context(), "ada", p), h.Process.Pid) })
		ask(func() { _, err = b.Release(t.Context(), "nobody") })
		must(t, err)
	}
	if _, err := plan(gpu); !errors.Is(err, binding.ErrHeld) {
		t.Errorf("a GPU that is stuck is planned for: %v", err)
	}
	must(t, b.Bind(t.Context(), "bob", free))
	_, err = b.Release(t.Context(), "bob")
	must(t, err)
	end(h)
	if e := <-late; e.err != nil || !e.there || e.entry.Phase != vfio.Bound || gpu.Driver() != binding.Driver {
		t.Errorf("once the node was closed: %+v, and the GPU is on %q", e, gpu.Driver())
	}
	if left, err := b.Release(t.Context(), "ada"); err != nil || len(left) > 0 {
		t.Errorf("released: %v, %v", left, err)
	}
	if after := snapshot(t); after != before {
		t.Errorf("afterwards there is\n%s, want\n%s", after, before)
	}
	figure.Tell(t, figure.Figure{ID: "vm.stuck_s", Case: "holder named", Values: []float64{named.Seconds()}, Note: "from the request until the error that names the process"})
	figure.Tell(t, figure.Figure{ID: "vm.stuck_s", Case: "others", Values: []float64{slices.Max(others)}, Note: "the longest of 60 other requests meanwhile; another group was bound and put back as well"})
}

// A device that is stuck and wanted no more is put back once the node is closed.
func TestStuckIsUndone(t *testing.T) {
	guest.Require(t)
	gpu := guest.Function(machine.Accelerator)
	gpu.Bind(t, "nvidia")
	before := snapshot(t)
	late, told := listener()
	b := open(t, fileName(t), told)
	p := planned(t, gpu)
	h := holder(t, guest.Nodes()[0])
	expectStuck(t, b.Bind(t.Context(), "ada", p), h.Process.Pid)
	_, err := b.Release(t.Context(), "ada")
	expectStuck(t, err, h.Process.Pid)
	end(h)
	if e := <-late; e.err != nil || e.there || len(e.left) > 0 {
		t.Errorf("once the node was closed: %+v", e)
	}
	if after := snapshot(t); after != before || len(b.Entries()) > 0 {
		t.Errorf("afterwards there is\n%s, want\n%s; the book has %v", after, before, b.Entries())
	}
}

// An agent is killed while a write sleeps in the kernel. The next one finds that write, names the holder, and puts all back once
// the node is closed.
func TestStuckWriteIsFoundAgain(t *testing.T) {
	guest.Require(t)
	gpu := guest.Function(machine.Accelerator)
	gpu.Bind(t, "nvidia")
	before := snapshot(t)
	path := fileName(t)
	cmd := agent(t, path, 1000)
	cmd.Env = append(cmd.Env, pauses+"=1")
	first := begun(t, cmd, "planned")
	h := holder(t, guest.Nodes()[0])
	_, err := first.in.Write([]byte{'\n'})
	must(t, err)
	first.says(t, "stuck")
	end(cmd)
	late, told := listener()
	next := open(t, path, told)
	if e := next.Entries(); len(e) != 1 || !e[0].Writer.Alive() {
		t.Fatalf("the book has %+v, want an entry whose writer lives", e)
	}
	_, err = next.Recover(t.Context())
	expectStuck(t, err, h.Process.Pid)
	end(h)
	if e := <-late; e.err != nil || e.there || len(e.left) > 0 {
		t.Errorf("once the node was closed: %+v", e)
	}
	if after := snapshot(t); after != before || len(next.Entries()) > 0 {
		t.Errorf("afterwards there is\n%s, want\n%s; the book has %v", after, before, next.Entries())
	}
}
