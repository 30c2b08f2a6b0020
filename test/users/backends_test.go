package users

import (
	"syscall"
	"testing"
)

// The administrator says how GPUs are shared, and every user chooses among them. Without that no user can have a GPU that
// others cannot share.
func TestBackendsOfUsers(t *testing.T) {
	s := newServer(t)
	first := s.agent()
	s.refused("u1", []string{"backend timeslice", "is the right of root"}, "divvy", "run", "--backend", "timeslice", "--memory", "1Gi", "--", "true")
	first.kill(syscall.SIGTERM)
	s.write("/etc/divvy/agent.yaml", head+"backends: {timeslice: [1]}\n")
	s.agent()
	s.hold("u1", "1Gi", "--backend", "timeslice", "--memory", "2Gi", "--name", "equal")
	s.hold("u2", "1Gi", "--memory", "2Gi", "--name", "divided")
	l := s.list()
	equal, _ := find(l, "u1", "equal")
	divided, _ := find(l, "u2", "divided")
	if equal.Shares[0].Index != 1 || equal.Shares[0].Backend != "timeslice" || divided.Shares[0].Index == 1 || divided.Shares[0].Backend != "slice" {
		t.Errorf("shares %+v and %+v", equal.Shares, divided.Shares)
	}
	s.refused("u2", []string{"gave GPU 1 backend timeslice", "add --backend timeslice"}, "divvy", "run", "--gpu", "1", "--memory", "1Gi", "--wait", "--", "true")
	s.refused("root", []string{"gave GPU 0 backend slice"}, "divvy", "run", "--gpu", "0", "--backend", "timeslice", "--memory", "1Gi", "--", "true")
}
