package users

import (
	"strings"
	"testing"
)

// fill leaves no room in /dev/shm, by a file of u6's.
func (s *server) fill() {
	s.t.Helper()
	s.asRoot("mount", "-o", "remount,size=64m", "/dev/shm")
	s.run("u6", "sh", "-c", "head -c 100m /dev/zero > /dev/shm/dataset; head -c 4096 /dev/zero > /dev/shm/rest")
}

// Where /dev/shm is full, a refusal says who fills it and what to do, and doctor finds it.
func TestFullSharedMemory(t *testing.T) {
	s := newServer(t)
	check := func(user, remedy string) {
		t.Helper()
		said := s.refused(user, []string{"/dev/shm", "is full", "user u6 has 6", remedy}, "divvy", "run", "--memory", "1Gi", "--", "true")
		if strings.Count(said, "\n") > 2 {
			t.Errorf("it is long: %s", said)
		}
		if o := s.run(user, "divvy", "doctor"); o.status != 1 || !strings.Contains(o.out, "fail  shared memory: ") || !strings.Contains(o.out, "user u6 has 6") {
			t.Errorf("%s, doctor: exit status %d\n%s", user, o.status, o.out)
		}
	}
	s.fill()
	check("u1", "ask them")
	s.ok("u6", "rm", "/dev/shm/dataset", "/dev/shm/rest")
	s.agent()
	s.ok("u1", "divvy", "run", "--memory", "1Gi", "--", "true")
	s.fill()
	check("u1", "ask them")
	check("root", "delete")
	s.ok("u6", "rm", "/dev/shm/dataset", "/dev/shm/rest")
	s.ok("u1", "divvy", "run", "--memory", "1Gi", "--", "true")
}
