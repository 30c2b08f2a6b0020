package vgpu_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/backend/vgpu"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// agentCommand makes a process of these tests an agent that does what it reads, line by line, until it is killed.
const agentCommand = "vgpu-agent"

func TestMain(m *testing.M) {
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == vfio.Command:
		err = vfio.Main(os.Args[2])
	case len(os.Args) == 4 && os.Args[1] == vfio.Command:
		err = vfio.MainBySteps(os.Args[3], mortal(filepath.Join(os.Args[2], fatalName)))
	case len(os.Args) == 3 && os.Args[1] == agentCommand:
		err = serve(os.Args[2])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// fatalName is a file beside the books, for the process that writes: the number of its step at which it ends by SIGKILL. A negative
// one has the agent end first. One process of all comes to it.
const fatalName = "fatal-step"

// mortal is the end of a process that writes.
func mortal(file string) func(string) {
	steps := 0
	return func(string) {
		steps++
		text, err := os.ReadFile(file) //nolint:gosec // beside the books
		if err != nil {
			return
		}
		if fatal, err := strconv.Atoi(string(text)); err != nil || max(fatal, -fatal) != steps || os.Remove(file) != nil {
			return
		} else if agent := os.Getppid(); fatal < 0 && agent > 1 {
			_ = syscall.Kill(agent, syscall.SIGKILL)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// order is what an agent is told: one thing, and the step at which it ends by SIGKILL, 0 for none.
type order struct {
	Do, Owner, GPU, Type string
	Count, Die           int
	// Fatal is the step at which the process that writes ends, as in the file of fatalName.
	Fatal int
	// Blind has the agent not see who has a device open, as where its processes are in another namespace.
	Blind bool
}

// reply is what an agent says. Has are the devices that its book has, by owner.
type reply struct {
	Fault       string
	Open, Owned bool
	Left        int
	Has         map[string]had
	// Entries is how many there are in the book.
	Entries int

	// killed is that the process that writes came to the step that was fatal to it.
	killed bool
}

// had is a device.
type had struct {
	Function, UUID, Type, Name string
	Group                      int
	Whole                      bool
}

// blind is a machine whose processes are not all seen.
type blind struct {
	vfio.Host
	on *bool
}

func (b blind) Openers(group string) (facts.Held, error) {
	if *b.on {
		return facts.Held{}, nil
	}
	return b.Host.Openers(group)
}

// backend is one of a folder, in which its books are.
func backend(folder string, isBlind *bool, step func(string)) (*vgpu.Backend, *vfio.Book, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	// The guest is slow, and so is its machine: nothing here is about time.
	book, err := vfio.Open(vfio.Config{
		Path: filepath.Join(folder, vfio.FileName), Machine: blind{vfio.Host{Root: "/", Program: program, Args: []string{vfio.Command, folder}}, isBlind},
		Limits: vfio.Limits{Look: time.Minute, Write: 2 * time.Minute}, Step: step,
	})
	if err != nil {
		return nil, nil, err
	}
	instances, err := openInstances(filepath.Join(folder, "instances.json"), step)
	if err != nil {
		return nil, nil, err
	}
	return vgpu.New(vgpu.Options{Root: os.DirFS("/"), Book: book, Instances: instances}), book, nil
}

// serve is an agent. Its first order is the one with which it recovers.
func serve(folder string) error {
	steps, die, isBlind := 0, 0, false
	step := func(string) {
		if steps++; steps == die {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	b, book, err := backend(folder, &isBlind, step)
	if err != nil {
		return err
	}
	ctx := context.Background()
	for in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout); ; {
		var o order
		if err := in.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		steps, die, isBlind = 0, o.Die, o.Blind
		if err := out.Encode(do(ctx, b, book, o)); err != nil {
			return err
		}
	}
}

// do does one thing.
func do(ctx context.Context, b *vgpu.Backend, book *vfio.Book, o order) (r reply) {
	gpu, err := pci.ParseAddress(o.GPU)
	var left []vfio.Foreign
	switch o.Do {
	case "recover":
		left, err = book.Recover(ctx)
		err = errors.Join(err, b.Recover(ctx))
	case "claim":
		if err == nil {
			_, err = b.Claim(ctx, o.Owner, gpu, o.Type)
		}
	case "release":
		left, err = b.Release(ctx, o.Owner)
	case "enable":
		err = b.EnableFunctions(ctx, gpu, o.Count)
	case "disable":
		left, err = b.DisableFunctions(ctx, gpu)
	}
	if err != nil {
		r.Fault = err.Error()
	}
	r.Open, r.Owned, r.Left = errors.Is(err, vfio.ErrOpen), errors.Is(err, vgpu.ErrOwner), len(left)
	r.Has, r.Entries = map[string]had{}, len(book.Entries())
	for _, e := range book.Entries() {
		if d, has := b.Device(e.Owner); has {
			r.Has[e.Owner] = had{d.Function.String(), d.UUID, d.Type, d.Name, d.Group, d.Whole}
		}
	}
	return r
}

// agent is such a process.
type agent struct {
	t      testing.TB
	folder string
	cmd    *exec.Cmd
	in     *json.Encoder
	out    *json.Decoder
}

// newAgent starts an agent with empty books. It ends with the test.
func newAgent(t testing.TB) *agent {
	t.Helper()
	a := &agent{t: t, folder: t.TempDir()}
	t.Cleanup(a.kill)
	a.start(0, 0)
	return a
}

// start starts a process that recovers what the last one left, and dies at a step of that, if there is such a one, of its own or of the
// process that writes.
func (a *agent) start(die, fatal int) (r reply, lives bool) {
	a.t.Helper()
	a.cmd = exec.Command("/proc/self/exe", agentCommand, a.folder) //nolint:noctx // killed with the test
	a.cmd.Stderr = os.Stderr
	in, err := a.cmd.StdinPipe()
	if err != nil {
		a.t.Fatal(err)
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		a.t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	a.in, a.out = json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))
	return a.ask(order{Do: "recover", GPU: "0000:00:00.0", Die: die, Fatal: fatal})
}

// restart starts an agent that lives, after one that died.
func (a *agent) restart() reply {
	a.t.Helper()
	r, lives := a.start(0, 0)
	if !lives {
		a.t.Fatal("an agent died of nothing")
	}
	return r
}

// ask tells the agent something. It does not live where it died at the step that the order names.
func (a *agent) ask(o order) (r reply, lives bool) {
	a.t.Helper()
	if o.GPU == "" {
		o.GPU = "0000:00:00.0"
	}
	fatal := filepath.Join(a.folder, fatalName)
	if o.Fatal != 0 {
		if err := os.WriteFile(fatal, []byte(strconv.Itoa(o.Fatal)), 0o600); err != nil {
			a.t.Fatal(err)
		}
		defer os.Remove(fatal)
	}
	if err := a.in.Encode(o); err != nil {
		a.t.Fatalf("tell the agent to %s: %v", o.Do, err)
	}
	err := a.out.Decode(&r)
	_, unused := os.Stat(fatal)
	r.killed = o.Fatal != 0 && errors.Is(unused, fs.ErrNotExist)
	if err == nil {
		return r, true
	}
	a.kill()
	if o.Die == 0 && o.Fatal >= 0 {
		a.t.Fatalf("the agent died of %+v", o)
	}
	return r, false
}

// must asks for what cannot fail.
func (a *agent) must(o order) reply {
	a.t.Helper()
	r, _ := a.ask(o)
	if r.Fault != "" {
		a.t.Fatalf("%+v: %s", o, r.Fault)
	}
	return r
}

func (a *agent) kill() {
	if a.cmd != nil {
		_ = a.cmd.Process.Kill()
		_ = a.cmd.Wait() // however it ended
		a.cmd = nil
	}
}
