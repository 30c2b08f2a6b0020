package daemon

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestSupervisorIsTold(t *testing.T) {
	for _, address := range []string{filepath.Join(t.TempDir(), "notify"), "@divvy-test-" + filepath.Base(t.TempDir())} {
		listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		t.Setenv(supervisorVariable, address)
		s, err := TakeSupervisor()
		if err != nil {
			t.Fatal(err)
		}
		if left, there := os.LookupEnv(supervisorVariable); there {
			t.Errorf("programs that the agent starts have %s=%s", supervisorVariable, left)
		}
		if err := s.Tell("READY=1", "STATUS=serving 8 GPUs"); err != nil {
			t.Fatal(err)
		}
		heard := make([]byte, 100)
		n, err := listener.Read(heard)
		if got, want := string(heard[:n]), "READY=1\nSTATUS=serving 8 GPUs"; err != nil || got != want {
			t.Errorf("the supervisor at %s heard %q, %v; want %q", address, got, err, want)
		}
	}
}

func TestNoSupervisor(t *testing.T) {
	t.Setenv(supervisorVariable, "")
	s, err := TakeSupervisor()
	if s != nil || err != nil {
		t.Errorf("TakeSupervisor() = %v, %v", s, err)
	}
	if err := s.Tell("READY=1"); err != nil {
		t.Errorf("to tell nobody fails: %v", err)
	}
	t.Setenv(supervisorVariable, filepath.Join(t.TempDir(), "nobody"))
	if s, err = TakeSupervisor(); err != nil {
		t.Fatal(err)
	}
	if err := s.Tell("READY=1"); err == nil {
		t.Error("no error where nobody listens")
	}
}
