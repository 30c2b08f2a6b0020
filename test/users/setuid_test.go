package users

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// answered waits until a process without a share has been told of and killed, and returns
// whose it was said to be.
func (s *server) answered(p *program, command string) (user string) {
	s.t.Helper()
	s.eventually("it is told of", func() bool {
		at := slices.IndexFunc(s.list().Events, func(e control.Event) bool {
			return e.Kind == control.EventOutside && strings.Contains(e.Text, "("+command+")")
		})
		if at >= 0 {
			user = s.list().Events[at].User
		}
		return at >= 0
	})
	if user == "u1" {
		if status := p.wait(); status != 128+9 {
			s.t.Errorf("a listed user's process without a share ended with %d", status)
		}
	}
	return user
}

// A program is the user's who started it, whatever user it runs as: it is reported and
// answered as theirs.
func TestProgramsAreWhoseUserStartedThem(t *testing.T) {
	s := newServer(t)
	s.write("/etc/divvy/agent.yaml", head+"outside: kill\nusers: {u4: {}}\ngroups: {students: {}}\n")
	s.agent()
	s.asRoot("sh", "-c", `for owner in root u4; do
	cp /opt/divvy/bin/gpubench /opt/as-$owner && chown $owner /opt/as-$owner && chmod 4755 /opt/as-$owner
done
cp /opt/divvy/bin/gpubench /opt/mapped`)
	t.Run("set-user-ID", func(t *testing.T) {
		p := s.start("u1", true, "/opt/as-root", "hold", "--bytes", "256Mi")
		if user := s.answered(p, "as-root"); user != "u1" {
			t.Errorf("it is said to be of %q", user)
		}
	})
	t.Run("in a user namespace", func(t *testing.T) {
		p := s.start("u1", true, "unshare", "--user", "sh", "-c",
			"echo up; read go; exec setpriv --reuid 5 --regid 5 --clear-groups /opt/mapped hold --bytes 256Mi")
		for _, ids := range []string{"uid_map", "gid_map"} {
			path := fmt.Sprintf("/proc/%d/%s", p.pid(), ids)
			if err := os.WriteFile(path, []byte("0 2001 1\n1 100000 1000\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := io.WriteString(p.input, "go\n"); err != nil {
			t.Fatal(err)
		}
		if user := s.answered(p, "mapped"); user != "u1" {
			t.Errorf("it is said to be of %q", user)
		}
	})
	t.Run("root's as another user", func(t *testing.T) {
		p := s.start("root", true, "/opt/as-u4", "hold", "--bytes", "256Mi")
		if user := s.answered(p, "as-u4"); user != "root" {
			t.Errorf("it is said to be of %q", user)
		}
		if status := p.end(); status != 0 {
			t.Errorf("it ended with %d", status)
		}
	})
}
