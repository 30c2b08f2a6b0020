package process

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

func start(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

func TestWatchSeesTheEnd(t *testing.T) {
	cmd := start(t)
	id, err := Find(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	done, stop, err := id.Watch()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	select {
	case <-done:
		t.Fatal("it ended before it was killed")
	default:
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done: // not waited for: a zombie counts as ended
	case <-time.After(5 * time.Minute):
		t.Fatal("its end was not seen")
	}
	if id.Alive() {
		t.Error("a zombie is alive")
	}
	again, stop, err := id.Watch()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	<-again
}

func TestWatchStops(t *testing.T) {
	id, err := Find(start(t).Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	done, stop, err := id.Watch()
	if err != nil {
		t.Fatal(err)
	}
	stop()
	select {
	case <-done:
		t.Error("a stopped watch reported an end")
	default:
	}
}

func TestAnotherProcessOfThePidIsNotTheSame(t *testing.T) {
	id, err := Find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !id.Alive() {
		t.Error("we are not alive")
	}
	other := ID{PID: id.PID, Start: id.Start + 1}
	if other.Alive() {
		t.Error("the start time is not looked at")
	}
	done, _, err := other.Watch()
	if err != nil {
		t.Fatal(err)
	}
	<-done
}

func TestAncestors(t *testing.T) {
	if got := Ancestors(start(t).Process.Pid); !slices.Contains(got, os.Getpid()) {
		t.Errorf("%v has not our pid %d", got, os.Getpid())
	}
	if _, err := Find(1 << 30); !errors.Is(err, ErrGone) {
		t.Errorf("%v, want ErrGone", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("1 (a) b) ) S 2 1 1 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 77 1 1"))
	f.Add([]byte("1 () "))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parse(data)
		if err != nil && s != (stat{}) {
			t.Fatalf("%+v with %v", s, err)
		}
	})
}
