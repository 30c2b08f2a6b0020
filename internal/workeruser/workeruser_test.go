package workeruser

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// modelled is a machine of which the test says whose numbers are.
type modelled struct {
	processes, files map[int]bool
	accounts         map[int]bool
	ranges           [][2]int
	fault            error
}

func (m modelled) present() (map[int]bool, error) { return m.processes, nil }
func (m modelled) owners() map[int]bool           { return m.files }
func (m modelled) lent() [][2]int                 { return m.ranges }
func (m modelled) account(id int) (bool, error)   { return m.accounts[id], m.fault }

func TestTake(t *testing.T) {
	m := modelled{
		processes: map[int]bool{101: true}, files: map[int]bool{102: true}, accounts: map[int]bool{103: true}, ranges: [][2]int{{50, 10}, {104, 2}},
	}
	p := &Pool{First: 100, Count: 10, next: 7, machine: m}
	held := map[int]bool{}
	for _, want := range []int{107, 108, 109, 100, 106} { // each number once around
		uid, err := p.Take(held)
		if err != nil || uid != want {
			t.Fatalf("%d, %v, want %d", uid, err, want)
		}
		held[uid] = true
	}
	_, err := p.Take(held)
	if !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "users 100 to 109 workers have 5, and 5 are others'") {
		t.Errorf("with none left: %v", err)
	}
	// One that is given back is not the next as long as others are free, nor while a process has it.
	delete(held, 107)
	delete(held, 108)
	m.processes[107] = true
	if uid, err := p.Take(held); err != nil || uid != 108 {
		t.Errorf("%d, %v, want 108", uid, err)
	}
}

// A number of which nobody can say whose it is, is not taken.
func TestTakeUnasked(t *testing.T) {
	fault := errors.New("the directory does not answer")
	p := &Pool{First: 100, Count: 10, machine: modelled{fault: fault}}
	if uid, err := p.Take(nil); !errors.Is(err, fault) || uid != 0 {
		t.Errorf("%d, %v", uid, err)
	}
}

func TestParse(t *testing.T) {
	owners := map[int]bool{}
	ownersOfIPC([]byte("key shmid perms size cpid lpid nattch uid gid cuid cgid\n 0 1 600 4 1 2 0 1000 7 1001 8\n 0 2 600\n"), owners)
	if !maps.Equal(owners, map[int]bool{1000: true, 1001: true}) {
		t.Errorf("owners %v", owners)
	}
	ranges := parseLent([]byte("ada:100000:65536\n# x\nbob:x:1\n7:200:3\n"))
	if len(ranges) != 2 || !within(ranges, 165535) || within(ranges, 165536) || within(ranges, 99999) || !within(ranges, 202) || within(ranges, 203) {
		t.Errorf("ranges %v", ranges)
	}
}

// This machine knows its own users, and nobody with a number from the middle of nowhere.
func TestHost(t *testing.T) {
	if known, err := (host{}).account(0); err != nil || !known {
		t.Errorf("root: %v, %v", known, err)
	}
	if known, err := (host{}).account(1879052288); err != nil || known {
		t.Errorf("nobody: %v, %v", known, err)
	}
	if !(host{}).owners()[0] {
		t.Error("root has nothing in the folders of everybody")
	}
}

// End kills the processes of a user, all of them and no others.
func TestEnd(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root becomes another user")
	}
	const uid, other = 1879052289, 1879052290
	var started []*exec.Cmd
	for _, of := range []uint32{uid, uid, other} {
		cmd := exec.Command("sleep", "1000")
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: of, Gid: of}}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		started = append(started, cmd)
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		if of == uid {
			go func() { _ = cmd.Wait() }()
		}
	}
	if err := New(0, 1).End(context.Background(), uid); err != nil {
		t.Error(err)
	}
	if err := started[2].Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("a process of another user: %v", err)
	}
	p := &Pool{machine: modelled{accounts: map[int]bool{other: true}}}
	if err := p.End(context.Background(), other); err == nil {
		t.Error("the processes of an account are ended")
	}
}
