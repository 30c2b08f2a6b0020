package users

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/attack"
)

// line is a request as it is sent to an agent.
func line(t *testing.T, id int, method control.Method, params any) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"id": id, "method": method, "params": params})
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + "\n"
}

// reborn starts a process of a user with a number on the server, which has nobody now. Other
// programs of the server take numbers too, so it tries again until it has that one.
func (s *server) reborn(user string, pid int) *program {
	s.t.Helper()
	if _, err := os.Stat("/proc/sys/kernel/ns_last_pid"); err != nil {
		installtest.Missing(s.t, "users", errors.New("this kernel lets nobody choose the next pid"))
	}
	const script = `n=0
while [ $n -lt 1000 ]; do
	n=$((n + 1))
	echo $(($1 - 1)) >/proc/sys/kernel/ns_last_pid
	setpriv --reuid "$2" --regid "$2" --clear-groups sleep 100000 >/dev/null 2>&1 &
	[ $! -eq "$1" ] && echo is there && wait && exit
	kill $!
	wait $!
done`
	p := s.start("root", true, "sh", "-c", script, "reborn", strconv.Itoa(pid), user)
	if p.first != "is there" {
		s.t.Fatalf("no process has number %d: %q", pid, p.first)
	}
	return p
}

// A connection whose maker has ended holds no share: the maker's number may be another
// user's process by now, and `divvy stop` would end that one.
func TestNobodyIsHeldForTheNumberOfAnother(t *testing.T) {
	for _, victim := range []string{"root", "u2"} {
		for _, moment := range []string{"before it is taken up", "after"} {
			t.Run(victim+" "+moment, func(t *testing.T) {
				s := newServer(t)
				s.agent()
				args := []string{s.build(attack.BuildUsher) + "/usher", "/run/divvy/agent.sock", line(t, 1, control.MethodHello, nil)}
				if moment == "after" {
					args = append(args, "late")
				}
				attacker := s.start("u1", true, args...)
				pid, err := strconv.Atoi(attacker.first)
				if err != nil {
					t.Fatal(err)
				}
				s.reborn(victim, pid)
				create := control.CreateParams{
					Request: v1alpha1.ShareRequest{Name: "theirs", Memory: v1alpha1.Bytes(gib)}, Layer: control.LayerEnv, Command: []string{"x"},
				}
				if _, err := io.WriteString(attacker.input, line(t, 2, control.MethodCreate, create)); err != nil {
					t.Fatal(err)
				}
				answer, err := readLine(attacker.output)
				if err != nil || !strings.Contains(answer, `"code":"invalid"`) || !strings.Contains(answer, "has ended") {
					t.Errorf("a share for a process that has ended: %q, %v", answer, err)
				}
				if o := s.run("u1", "divvy", "stop", "--grace", "0s", "theirs"); o.status == 0 {
					t.Error("there is a share to stop")
				}
				if name, err := os.ReadFile(filepath.Join(s.Root, fmt.Sprintf("proc/%d/comm", pid))); err != nil || strings.TrimSpace(string(name)) != "sleep" {
					t.Errorf("process %d of %s is %q, %v", pid, victim, name, err)
				}
				if list := s.list(); len(list.Tenants) != 0 {
					t.Errorf("there are %+v", list.Tenants)
				}
			})
		}
	}
}
